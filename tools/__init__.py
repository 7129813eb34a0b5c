"""What maintainers need besides the package: releases, badges, and checks of the site in a browser."""
