"""The command line, `stiefel-init`: thin commands over the laboratory's functions.

Here the commands get their names and their order.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ...core.errors import StiefelError, missing, unknown
from ..options import Plugin
from . import commands

ROOT = Path(__file__).parents[4]
"""Of the clone, if this is one: its `paper/`, which no wheel has, brings commands of its own."""


def _version(wanted: bool) -> None:
    if wanted:
        from ... import __version__

        print(f"stiefel-init {__version__}")
        raise typer.Exit


def load_plugins(
    plugin: Plugin = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Import the user's files that register schemes, data sets, activations or experiments."""
    from ..plugins import load_file

    for path in plugin or ():
        load_file(path)


def of_paper() -> dict[str, Callable[..., None]]:
    """The clone's commands by name; without it, commands that say where to get it."""
    names = ("reproduce", "compare")
    if not (ROOT / "paper" / "commands.py").is_file():
        return dict.fromkeys(names, absent)
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from paper import commands

    return {name: getattr(commands, name) for name in names}


def absent(context: typer.Context) -> None:
    """In a clone of the repository only: the paper's tables and figures, and our studies."""
    raise StiefelError(
        f"{context.info_name} needs the paper's experiments, which are in the repository and not in the package; clone "
        "it, install it from there and run this again."
    )


def _command(parent: typer.Typer, name: str, function: Callable[..., None], panel: str = "") -> None:
    """Make a function a command that Ctrl-C ends cleanly, with exit code 130."""

    whatever = {"allow_extra_args": True, "ignore_unknown_options": True} if function is absent else None

    @parent.command(name, rich_help_panel=panel or None, context_settings=whatever)
    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as `head`, has stopped reading
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            print("\nStopped. Finished work is kept; rerun the command to resume.", file=sys.stderr)
            sys.exit(130)


def program(about: str, groups: dict[str, dict[str, Callable[..., None]]]) -> typer.Typer:
    """A program of commands in groups, which takes --plugin and --version before them."""
    made = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich", help=about)
    made.callback()(load_plugins)
    for panel, commands_of in groups.items():
        for name, function in commands_of.items():
            _command(made, name, function, panel)
    return made


app = program(
    "Deep ReLU networks that train from the first step: initialize, diagnose, and re-run the paper.",
    {
        "Compare initializations": {"demo": commands.demo, "train": commands.train, "list": commands.list_studies},
        "Look into a network": {"diagnose": commands.diagnose, "audit": commands.audit},
        "The paper (in a clone)": of_paper(),
    },
)
data_app = typer.Typer(no_args_is_help=True, help="List and fetch the data sets.")
app.add_typer(data_app, name="data", rich_help_panel="Compare initializations")
_command(data_app, "list", commands.data_list)
_command(data_app, "get", commands.data_get)


# The base of typer's own complaints, which it does not export.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


def _complaint(sentence: str) -> str:
    """A complaint of typer's as a sentence; about a value that is none of a few, as the library puts it."""
    if choice := re.match(r"Invalid value for '(-\S+)'.*: .*?'(.*)' is not one of (.*)", sentence):
        option, value, choices = choice.groups()
        return str(unknown(option, value, re.findall("'([^']+)'", choices)))
    return sentence + ("." if sentence and sentence[-1] not in ".!?" else "")


_PACKAGES = ("torch", "pandas", "sklearn", "matplotlib", "markdown_it", "PIL", "rich")  # what the extra `lab` brings


def main(arguments: list[str] | None = None, program: typer.Typer = app, name: str = "stiefel-init") -> None:
    """Run the command line: exit code 0, 2 for bad input (explained in one sentence), 130 for Ctrl-C.

    `audit` ends with 1 where something looks wrong.
    """
    try:
        code = program(args=arguments, prog_name=name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except StiefelError as error:
        sentence = str(error)
    except _UsageError as error:
        sentence = _complaint(error.format_message())
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in _PACKAGES:
            raise
        sentence = str(missing(error, "this command", lacking, "lab"))
    if sentence:  # none where a command is missing, and the help was the answer
        print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
