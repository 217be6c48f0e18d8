"""The command line: assembles its commands, and turns errors into exit codes."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.core.errors import AutotunerError, Conflict, InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    app: typer.Typer
    """All commands; the application is created at its first use."""

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Find a layout": {
        "predict": "questions",
        "explain": "questions",
        "layers": "questions",
        "phases": "questions",
        "dry-run": "questions",
        "sweep": "sweeps",
    },
    "Decide where to train": {"plan": "questions"},
    "Bring your own launch": {"import": "exports", "export": "exports"},
    "Look at sweeps": {
        "list": "sweeps",
        "show": "sweeps",
        "comment": "sweeps",
        "comments": "sweeps",
        "front": "sweeps",
        "rules": "questions",
        "study": "sweeps",
        "track": "sweeps",
    },
    "Control sweeps": dict.fromkeys(("pause", "resume", "extend", "rerun", "clone", "cancel"), "sweeps"),
    "Once a layout is in use": {"gate": "gates", "baselines": "gates"},
    "Check and correct predictions": {
        "calibrate": "facts",
        "backtest": "backtest",
        "profile": "facts",
        "catalog": "facts",
        "stacks": "facts",
        "support": "facts",
    },
    "Check this installation": {"doctor": "doctor"},
    "Run the service": {
        "serve": "operate",
        "mcp": "operate",
        "worker": "operate",
        "migrate": "operate",
        "trainers": "facts",
        "engines": "facts",
        "audit": "facts",
    },
    "Maintain the database": dict.fromkeys(("backup", "restore", "thin"), "operate"),
}
"""Modules of the commands, by panel of the help."""

_GROUPS = {
    "token": ("operate", "Run the service"),
    "cluster": ("clusters", "Clusters"),
    "webhook": ("operate", "Once a layout is in use"),
    "optimizer": ("optimizer", "Once a layout is in use"),
    "retune": ("retunes", "Once a layout is in use"),
}
"""Module and panel of the help for each group of commands."""


EXIT_CODES: Mapping[int, str] = {
    0: "The command did what it was asked.",
    1: "The program has an error of its own. Please report it.",
    2: "The input is wrong. The message names the value, the rule and the nearest legal value.",
    3: "Nothing is stored under that name or id.",
    4: "The request conflicts with stored data.",
    5: "The service, its database or a tracker (MLflow or W&B) does not answer.",
    6: "Nothing was measured: a sweep ended without a measured layout, no row of a table can be judged, a check of a "
    "cluster failed, a gate could not run, or the receiver did not accept the test of a webhook.",
    7: "No layout fits in memory.",
    8: "A gate failed.",
    9: "A gate is undecided.",
    10: "No baseline is stored for a gate.",
    11: "The service asked for a token, or refused the one it got.",
    130: "The command was interrupted.",
}
"""The meaning of each exit code."""


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"autotuner {version('parallelism-autotuner')}")
        raise typer.Exit


_LOG = logging.getLogger("autotuner")
"""Logger of notes about the work of a command. Its level is set by --quiet and --verbose."""


def _be_quiet(asked: bool) -> None:
    if asked:
        _LOG.setLevel(logging.ERROR)


def _be_verbose(asked: bool) -> None:
    if asked:
        from autotuner.cli.console import LogLines

        _LOG.setLevel(logging.INFO)
        _LOG.handlers = [LogLines()]


@contextmanager
def _volume() -> Iterator[None]:
    """Take back what --quiet and --verbose set when the command has ended, and note its time before."""
    began_at, level, handlers = time.monotonic(), _LOG.level, _LOG.handlers
    try:
        yield
    finally:
        _LOG.info("took %.2f s", time.monotonic() - began_at)
        _LOG.setLevel(level)
        _LOG.handlers = handlers


def _options(
    version: Annotated[  # the callback prints the version
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", callback=_be_quiet, help="Print only the answer and errors.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", callback=_be_verbose, help="Print on standard error what the command does."),
    ] = False,
) -> None:
    """Accept the options that come before a command."""


def _with_volume(root: Any) -> Any:
    """Return the command line with --quiet and --verbose after the name of a command, too."""
    volume = [one for one in root.params if one.name in ("quiet", "verbose")]
    for one in volume:
        one.expose_value = False  # their callbacks do the work, so that no command has a parameter for them

    def add(group: Any) -> None:
        for command in group.commands.values():
            command.params += volume
            if hasattr(command, "commands"):
                add(command)

    add(root)
    return root


@cache
def _commands(only: str) -> typer.Typer:
    """Return the command line. If ``only`` names a command, add just this one, so that no other module is imported."""
    found = typer.Typer(
        name="autotuner",
        help="Find the parallel layout that trains a transformer fastest.",
        epilog="Exit codes: 0 done, 1 our error, 2 wrong input, 3 not found, 4 conflict, 5 no service or database, "
        "6 nothing measured, 7 nothing fits, 8 gate failed, 9 gate undecided, 10 no baseline, 11 access denied, "
        "130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    found.callback()(_options)
    for panel, modules in _COMMANDS.items():
        for name, module in modules.items():
            if only in ("", name):
                found.command(name, rich_help_panel=panel)(_member(module, name))
    for name, (module, panel) in _GROUPS.items():
        if only in ("", name):
            found.add_typer(_member(module, name), name=name, rich_help_panel=panel)
    return found


def _member(module: str, name: str) -> Any:
    name = f"{name}_" if name in ("import", "list") else name.replace("-", "_")  # words of Python itself
    return getattr(import_module(f"autotuner.cli.{module}"), name)


def __getattr__(name: str) -> Any:
    if name == "app":
        return _commands("")
    raise AttributeError(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An error becomes one line on standard error and an exit code.

    Args:
        arguments: The words after the program's name; None: those of this process.
    """
    only = ""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        names = {*_GROUPS, *(name for modules in _COMMANDS.values() for name in modules)}
        first = next((word for word in given if not word.startswith("-")), "")
        only = first if first in names else ""
        with _volume():
            _with_volume(typer.main.get_command(_commands(only)))(given)
    except KeyboardInterrupt:
        sys.exit(130)
    except AutotunerError as error:
        _print_error(str(error))
        sys.exit(_exit_code(error))
    except ModuleNotFoundError as error:
        from autotuner.extras import installing, missing_extra

        extra = missing_extra(error)
        if extra is None:
            raise
        _print_error(f"`autotuner {only}` needs {error.name}, which is not installed: {installing(extra)}")
        sys.exit(2)


def _print_error(text: str) -> None:
    from autotuner.cli.console import print_error

    print_error(text)


def _exit_code(error: AutotunerError) -> int:
    from autotuner.remote import ServiceError

    match error:
        case ServiceError(status=401 | 403):
            return 11
        case ServiceError(status=404) | NotFound():
            return 3
        case ServiceError(status=409) | Conflict():
            return 4
        case ServiceError(status=503) | StoreUnavailable():
            return 5
        case ServiceError(status=status) if status >= 500:
            return 1
        case ServiceError() | InvalidInput():
            return 2
    return 1
