"""`python -m paper`: what maintainers do with records."""

from stiefel_init.lab.cli import main, program

from . import commands

app = program(
    "Publish the records of a run, write the pages.",
    {"": {each.__name__: each for each in (commands.docs, commands.report, commands.publish)}},
)

if __name__ == "__main__":
    main(None, app, "python -m paper")
