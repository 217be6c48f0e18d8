"""Pages of commands, their options and their exit codes, made from the command line itself."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from autotuner.cli.main import EXIT_CODES, app
from documentation.reference.markdown import fence, head, prose, table, words

_INTRODUCTION = """\
Every command that prints a result takes `--json`, which prints JSON and nothing else. `--server URL` or the variable
`AUTOTUNER_SERVER` names a running service. Without it a command calls the service in its own process, and nothing
listens on a port. The [exit code](exit-codes.md) says how a command ended.

Every command takes two more options, before its name or behind it:

| option | meaning |
| --- | --- |
| `-q`, `--quiet` | Print only the answer and errors: no progress and no notes. |
| `-v`, `--verbose` | Print on standard error the files that the command reads and writes, its requests, and its time. |

Standard output has the same text with each of them. A bar on standard error shows the progress of work that takes more
than a second. Pipes and files get no bar and no colours; `NO_COLOR=1` turns off colours in a terminal.
"""


def commands_page() -> str:
    """Return the Markdown page of commands: a table of all, then each one with its options."""
    panels: dict[str, list[tuple[str, TyperCommand]]] = {}
    for panel, name, command in all_commands():
        panels.setdefault(panel, []).append((name, command))
    parts = [
        head("Commands", "Every command of `autotuner`, with its arguments, its options and an example."),
        _INTRODUCTION,
    ]
    for panel, commands in panels.items():
        rows = [(f"[`autotuner {name}`](#{_anchor(name)})", _first_line(command)) for name, command in commands]
        parts.append(f"**{panel}**\n\n{table(('command', 'it does'), rows)}")
    for panel, commands in panels.items():
        parts.append(f"## {panel}\n")
        parts += [_command(name, command) for name, command in commands]
    return "\n".join(parts)


def exit_codes_page() -> str:
    """Return the Markdown page of exit codes."""
    rows = [(f"`{code}`", meaning) for code, meaning in EXIT_CODES.items()]
    return f"{head('Exit codes', 'The exit code of every `autotuner` command says how it ended.')}\n" + table(
        ("code", "meaning"), rows
    )


def all_commands() -> Iterator[tuple[str, str, TyperCommand]]:
    """Yield each command that runs something: its panel in the help, its words (``cluster add``), and the command."""
    root = typer.main.get_group(app)
    for name, command in root.commands.items():
        panel = str(getattr(command, "rich_help_panel", "") or "Commands")
        for words_of, one in _members(name, command):
            yield panel, words_of, one


def _members(name: str, command: Any) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, TyperGroup):
        for inner, member in command.commands.items():
            yield from _members(f"{name} {inner}", member)
    else:
        yield name, command


def _anchor(name: str) -> str:
    return f"autotuner-{name.replace(' ', '-')}"


def _first_line(command: TyperCommand) -> str:
    return prose((command.help or "").partition("\n\n")[0].replace("\n", " "))


def _command(name: str, command: TyperCommand) -> str:
    about, _, example = (command.help or "").partition("Example: ")
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join([f"autotuner {name}", *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"### autotuner {name}\n", f"{prose(about)}\n", fence(usage, "text")]
    if arguments:
        rows = [(f"`{_metavar(one)}`", prose(getattr(one, "help", "") or "")) for one in arguments]
        parts.append(table(("argument", "meaning"), rows))
    if options:
        lines = [(_flags(one), _default(one), prose(getattr(one, "help", "") or "")) for one in options]
        parts.append(table(("option", "default", "meaning"), lines))
    if example:
        parts.append("Example:\n\n" + fence(textwrap.dedent(example), "sh"))
    return "\n".join(parts)


def _metavar(one: Any) -> str:
    return str(one.metavar or one.name).upper().strip("[]").replace("...", "")


def _usage(one: Any) -> str:
    name = _metavar(one) + ("..." if one.nargs != 1 else "")
    return name if one.required else f"[{name}]"


def _flags(one: Any) -> str:
    value = "" if one.is_flag else f" {re.sub(r'[<>]', '', str(one.metavar or 'TEXT'))}"
    return words(f"{flag}{value}" for flag in (*one.opts, *one.secondary_opts))


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if one.envvar:
        return f"`${one.envvar}`"
    shown = one.show_default if isinstance(one.show_default, str) else one.default if one.show_default else None
    if one.is_flag:
        return "" if not shown else "on"
    return "" if shown in (None, "", (), []) else f"`{shown}`"
