"""Training many networks at once: cells, stacks, engines, records. The README beside this file has the map."""
