"""``autotuner export``: a layout in the words of the trainer that will run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.cli.options import (
    Json,
    OptionalCluster,
    OptionalGlobalBatch,
    OptionalModel,
    OptionalSeqLen,
    OptionalStack,
    Server,
    refuse_beside_trial,
    require_without_trial,
)
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.core.requests import ExportRequest
    from autotuner.export.target import Export

_TRIAL = re.compile(r"sw-[A-Za-z0-9]+-\d+")
"""The id of a trial, which no words of a layout look like."""

_FORMATS = (
    "megatron-lm, megatron-bridge, nemo, torchtitan, torchtitan-config, deepspeed, accelerate, transformers, "
    "torchrun, sbatch, or arguments."
)


def export(
    layout: Annotated[
        str, typer.Argument(help="Layout as tables print it ('fsdp8 tp4 mb1 sp'), JSON, or the id of a trial.")
    ],
    wanted: Annotated[str, typer.Option("--format", help=f"Trainer to write for: {_FORMATS}")],
    model: OptionalModel = None,
    cluster: OptionalCluster = None,
    global_batch: OptionalGlobalBatch = None,
    seq_len: OptionalSeqLen = None,
    stack: OptionalStack = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder to write the files to. Default: print them.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write a layout as command-line arguments or configuration files of a trainer.

    Standard error lists what the trainer cannot do, and what keeps its default.

    Example: autotuner export sw-k3v7q2mxn5-0003 --format megatron-lm
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import print_json
    from autotuner.cli.inputs import may_be_stored
    from autotuner.core import documents

    job = {"model": model, "cluster": cluster, "global_batch": global_batch, "seq_len": seq_len}
    if _TRIAL.fullmatch(layout):
        refuse_beside_trial(**job, stack=stack)
        with connect(server) as client:
            found = client.export_trial(layout, format=documents.read(ExportFormat, wanted, "format"))
    else:
        request = _request(layout, job, {"format": wanted, "stack": stack})
        with connect(server, keep=may_be_stored(cluster or "")) as client:
            found = client.export_layout(request)
    written = [] if output is None else _write(found, output)
    if as_json:
        print_json(documents.write(found))
    else:
        _print(found, written)


def _request(layout: str, job: dict[str, Any], more: dict[str, Any]) -> ExportRequest:
    """Return the layout with its job, from options that are only needed where no trial is given."""
    from autotuner.cli.inputs import job_body
    from autotuner.cli.layout_text import read_layout
    from autotuner.core.documents import read
    from autotuner.core.requests import ExportRequest

    fields = read_layout(layout)
    require_without_trial(**job)
    return read(ExportRequest, job_body(**job) | {"layout": fields} | more)


def _write(export: Export, folder: Path) -> list[Path]:
    """Write the files, and the arguments as one, into a folder that is made where it is missing."""
    texts = {Path(file.name).name: file.text for file in export.files}
    if export.command_line:
        texts["arguments.txt"] = export.command_line
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput("--output", str(folder), f"cannot be written: {error.strerror}") from error
    return [folder / name for name in texts]


def _print(export: Export, written: list[Path]) -> None:
    """Print the trainer's words on standard output, and what is to be known of them on standard error."""
    from autotuner.cli.console import PlainConsole
    from autotuner.report.export import export_report
    from autotuner.report.terminal import render

    text = "".join(f"{path}\n" for path in written) or export.text
    typer.echo(text, nl=not text.endswith("\n"))
    notes = render(export_report(export, has_text=False))
    PlainConsole(stderr=True, highlight=False).print(notes, soft_wrap=True)
