"""`python -m paper`: what maintainers do with records."""

from stiefel_init.lab.cli import main, program

from . import commands

app = program(
    "Publish the records of a run, say which source made them, write the pages.",
    {
        "docs": commands.docs,
        "report": commands.report,
        "publish": commands.publish,
        "source": commands.source,
    },
)

if __name__ == "__main__":
    main(None, app, "python -m paper")
