"""The command line: its commands, and the exit codes of their errors.

Exit codes: 0 done; 1 an error of ours; 2 the input is wrong; 3 nothing is stored under that name; 4 the request
conflicts with stored data; 5 the service or its database does not answer; 6 the sweep ended without a measured
layout, no row of a table can be judged, a cluster's check failed, a gate could not run, or a webhook's test was not
accepted; 7 no layout fits in memory; 8 a gate failed; 9 a gate is undecided; 10 no baseline is stored for a gate;
11 the service refused the token, or asked for one; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Annotated, Any

import typer

from autotuner.cli.commands.access import audit, token
from autotuner.cli.commands.backtest import backtest, calibrate
from autotuner.cli.commands.catalog import catalog, engines, stacks, trainers
from autotuner.cli.commands.cluster import cluster
from autotuner.cli.commands.control import clone, extend, pause, rerun, resume
from autotuner.cli.commands.database import backup, restore, thin
from autotuner.cli.commands.dry_run import dry_run
from autotuner.cli.commands.explain import explain, rules
from autotuner.cli.commands.export import export
from autotuner.cli.commands.gate import baselines, gate
from autotuner.cli.commands.import_ import import_
from autotuner.cli.commands.optimizer import optimizer
from autotuner.cli.commands.profile import profile
from autotuner.cli.commands.questions import layers, phases, plan, predict
from autotuner.cli.commands.retune import retune
from autotuner.cli.commands.serve import migrate, serve, worker
from autotuner.cli.commands.study import front, study
from autotuner.cli.commands.sweep import cancel, show, sweep
from autotuner.cli.commands.webhook import webhook
from autotuner.core.errors import AutotunerError, Conflict, InvalidInput, NotFound, StoreUnavailable

app = typer.Typer(
    name="autotuner",
    help="Find the parallel layout that trains a transformer fastest.",
    epilog="Exit codes: 0 done, 1 our error, 2 wrong input, 3 not found, 4 conflict, 5 no service or database, "
    "6 nothing measured, 7 nothing fits, 8 gate failed, 9 gate undecided, 10 no baseline, 11 access denied, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_COMMANDS = {
    "Find a layout": (predict, explain, layers, phases, dry_run, sweep),
    "Decide where to train": (plan,),
    "Bring your own launch": (import_, export),
    "Look at sweeps": (show, front, rules, study),
    "Control sweeps": (pause, resume, extend, rerun, clone, cancel),
    "Once a layout is in use": (gate, baselines),
    "Check and correct predictions": (calibrate, backtest, profile, catalog, stacks),
    "Run the service": (serve, worker, migrate, trainers, engines, audit),
    "Maintain the database": (backup, restore, thin),
}

for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        _name = _command.__name__.strip("_").replace("_", "-")  # import is a word of Python
        app.command(_name, rich_help_panel=_panel)(_command)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"autotuner {version('parallelism-autotuner')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # its callback prints it
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


app.add_typer(token, name="token", rich_help_panel="Run the service")
app.add_typer(cluster, name="cluster", rich_help_panel="Clusters")
app.add_typer(webhook, name="webhook", rich_help_panel="Once a layout is in use")
app.add_typer(optimizer, name="optimizer", rich_help_panel="Once a layout is in use")
app.add_typer(retune, name="retune", rich_help_panel="Once a layout is in use")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        _reader(given[0] if given else "")(given)
    except KeyboardInterrupt:
        sys.exit(130)
    except AutotunerError as error:
        from rich.text import Text

        from autotuner.cli.console import PlainConsole

        text = Text.assemble(("error", "bold red"), f": {error}")
        PlainConsole(stderr=True).print(text, soft_wrap=True)
        sys.exit(_exit_code(error))


@cache
def _reader(first: str) -> Any:
    """Return the parser of arguments that begin with this one.

    Typer builds it from the signatures of all commands, in a tenth of a second; where one is named, only from its own.
    """
    alone = [command for command in app.registered_commands if command.name == first]
    if not alone:
        return typer.main.get_command(app)
    reader = copy(app)
    reader.registered_commands, reader.registered_groups = alone, []
    return typer.main.get_group(reader)


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
