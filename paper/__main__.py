"""`python -m paper`: what maintainers do with records."""

from stiefel_init.lab.cli import main, program

from . import commands

app = program(
    "Publish the records of a run, say which source made them, write the pages.",
    {"": {each.__name__: each for each in (commands.docs, commands.report, commands.publish, commands.source)}},
)

if __name__ == "__main__":
    main(None, app, "python -m paper")
