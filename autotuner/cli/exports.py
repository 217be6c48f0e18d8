"""``autotuner import`` and ``export``: read a trainer's present configuration, and write a layout for a trainer."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.catalog.models import load_model, models
from autotuner.catalog.named import cluster_described
from autotuner.cli.console import console, notes, open_service, print_json, progress, show
from autotuner.cli.files import read_open, read_text, write_text
from autotuner.cli.flags import SELDOM, Json, Server, flags
from autotuner.cli.folder import SaveDir, files_of, save_of_job, save_of_trial
from autotuner.connections import answering, ask, is_stored_cluster
from autotuner.core import documents
from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.requests import ExportRequest, ImportRequest, PredictionRequest
from autotuner.core.text import described, in_words_of, inputs_of, to_document

if TYPE_CHECKING:
    from autotuner.core.cluster import Cluster
    from autotuner.door import Autotuner
    from autotuner.exports.shared.target import Export, Imported
    from autotuner.remote import Remote
    from autotuner.search.preview import PredictionTable

_FORMATS = (
    "megatron-lm, megatron-bridge, nemo, torchtitan, torchtitan-config, deepspeed, accelerate, transformers, "
    "torchrun, sbatch, or arguments."
)


# ---------------------------------------------------------------- export
@flags(ExportRequest, unless="layout")
def export(
    request: ExportRequest | None,
    layout: Annotated[
        str, typer.Argument(help="Layout as tables print it ('fsdp8 tp4 mb1 sp'), JSON, or the id of a trial.")
    ],
    format: Annotated[str, typer.Option("--format", help=f"Trainer to write for: {_FORMATS}")],  # noqa: A002
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher", help="Write scripts, too, that start your trainer: torchrun, sbatch, or kubernetes."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder to write the files to. Default: print them.")
    ] = None,
    save_dir: SaveDir = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write a layout as command-line arguments or configuration files of a trainer.

    Standard error lists what the trainer cannot do, and what keeps its default.

    Example: autotuner export sw-k3v7q2mxn5-0003 --format megatron-lm
    """
    if request is None:
        with open_service(server) as client:
            found = client.export_trial(
                layout,
                format=documents.read(ExportFormat, format, "format"),
                launcher=None if launcher is None else documents.read(ExportLauncher, launcher, "launcher"),
            )
    else:
        found = ask(request, server, lambda door: door.export(request), lambda remote: remote.export_layout(request))
    if save_dir is not None and request is None:
        with open_service(server) as client:
            save_of_trial(save_dir, client, layout, format=found.format)
    elif save_dir is not None and request is not None:
        save_of_job(
            save_dir, request, found.layout, stack=request.stack or _stack_of(found), format=found.format, server=server
        )
    written = [] if output is None else _write(found, output)
    if as_json:
        print_json(documents.write(found))
    else:
        _print(found, written)


def _stack_of(export: Export) -> str:
    from autotuner.exports.shared.target import stack_of

    return stack_of(export.format)


def _write(export: Export, folder: Path) -> list[Path]:
    """Write the files of the export, and a file with its arguments, into a folder; create the folder if needed."""
    texts = files_of(export)
    for name, text in texts.items():
        write_text(folder / name, text, "--output")
    return [folder / name for name in texts]


def _print(export: Export, written: list[Path]) -> None:
    """Print the exported configuration on standard output, and the notes about it on standard error."""
    from autotuner.report.export import export_report
    from autotuner.report.terminal import render

    text = "".join(f"{path}\n" for path in written) or export.text
    typer.echo(text, nl=not text.endswith("\n"))
    notes().print(render(export_report(export, has_text=False)), highlight=False, soft_wrap=True)


# ---------------------------------------------------------------- import
_SHOWN = 3
"""Number of rows in the comparison; ``predict`` can print more."""

_JOB = {"model": "MODEL", "cluster": "CLUSTER", "global_batch_size": "SEQUENCES", "seq_len": "TOKENS"}
"""Inputs of a prediction that describe the job, with the placeholder that is shown for a missing one."""


def import_(
    config: Annotated[
        list[str],
        typer.Argument(
            help="Launch script, configuration file, or log that starts with the arguments. "
            "Write - for standard input, or -- before flags."
        ),
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="Model that it trains, as for `autotuner predict`.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Cluster that it runs on, as for `autotuner predict`.")
    ] = None,
    global_batch_size: Annotated[
        str | None, typer.Option("--global-batch-size", help="Sequences per optimizer step, whole job.")
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", metavar="TOKENS", help="Tokens per sequence, such as 8192 or 8k.")
    ] = None,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Trainer of the configuration, as for `autotuner export`. Default: found automatically.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            min=1,
            help="Ranks of the job. Default: the ranks of --cluster or of the configuration.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            help="Training software to predict for. Default: that of the trainer.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(
            "--save-model",
            help="File to write the model of the configuration to. --model reads it.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    save_dir: SaveDir = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Read the layout that you use today from a launch script or a configuration.

    With --cluster, it also predicts the best layout that your trainer can run.
    It never runs a script.

    Example: autotuner import train.sh --cluster h100:64
    """
    from autotuner.report.export import import_report

    given = {
        "model": model or save_model,
        "cluster": cluster,
        "global_batch_size": global_batch_size,
        "seq_len": seq_len,
        "stack": stack,
    }
    where = described(cluster or "", "--cluster", read_text)
    asked: dict[str, Any] = {"text": _text(config), "format": wanted, "num_ranks": ranks}
    with answering(server, opens_store=isinstance(where, str) and bool(where) and is_stored_cluster(where)) as client:
        if ranks is None and where:
            asked["num_ranks"] = _cluster(client, where).world_size
        read = client.import_configuration(documents.read(ImportRequest, asked))
        if save_model is not None:
            _save(read, save_model)
        texts = _texts(read, {name: str(text) for name, text in given.items() if text})
        if not as_json:
            show(read, import_report)
        with progress("predicting layouts"):
            compared = client.predict(_request(read, texts)) if cluster else None
    if save_dir is not None:
        request = _request(read, texts)
        save_of_job(
            save_dir,
            request,
            read.layout,
            stack=request.stack,
            format=read.format,
            server=server,
            layouts=compared.items if compared else (),
        )
    if as_json:
        print_json(documents.write(read) | {"compared": documents.write(compared)})
    else:
        _print_comparison(read, compared, texts)


def _cluster(client: Autotuner | Remote, where: str | Mapping[str, Any]) -> Cluster:
    if not isinstance(where, str):
        return cluster_described(where)
    from autotuner.remote import Remote

    return client.read_cluster(where) if isinstance(client, Remote) else client.cluster(where)


def _text(config: Sequence[str]) -> str:
    """Return the configuration to read: from standard input, from a file, or the given flags themselves."""
    if config == ["-"]:
        return read_open(sys.stdin, "-", "config")
    first = config[0]
    is_name = not first.startswith("--") and not any(mark in first for mark in " =\n")
    if len(config) > 1 or not (isfile(first) or is_name):
        return first if len(config) == 1 else shlex.join(config)
    return read_text(first, "config", errors="replace")


def _save(read: Imported, path: Path) -> None:
    """Write the model of a configuration to a file.

    Raises:
        InvalidInput: The configuration has no model, or the file cannot be written.
    """
    if read.model is None:
        raise InvalidInput(
            "--save-model",
            str(path),
            "cannot be written, because the configuration does not state the sizes of a model; leave out --save-model",
        )
    if path.suffix != ".json":
        raise InvalidInput("--save-model", str(path), "must end in .json", f"{path}.json")
    write_text(path, json.dumps(to_plain(read.model), indent=2) + "\n", "--save-model")


def _texts(read: Imported, given: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs of a prediction: the caller's values replace those of the configuration."""
    name = read.model.name if read.model else ""
    is_known = name in models() and load_model(name) == read.model
    known = {
        "model": name if is_known else "",
        "global_batch_size": read.global_batch_size,
        "seq_len": read.seq_len,
        "stack": read.stack,
    }
    return {name: str(said) for name, said in known.items() if said} | dict(given)


def _request(read: Imported, texts: Mapping[str, str]) -> PredictionRequest:
    """Return the request for the best layouts that the trainer supports, compared with the present layout.

    Raises:
        InvalidInput: A part of the job is missing both in the configuration and in the options.
    """
    for name in ("seq_len", "global_batch_size", "model"):
        if name not in texts and not (name == "model" and read.model):
            rule = "is required, because the configuration does not state it"
            a_model = "; give a name or a config.json" if name == "model" else ""
            raise InvalidInput(f"--{name.replace('_', '-')}", None, f"{rule}{a_model}")
    inputs = inputs_of(PredictionRequest)
    try:
        job = {"model": to_plain(read.model)} | to_document(inputs, texts, read_file=read_text)
        today = {"current": to_plain(read.layout), "format": read.format, "limit": _SHOWN}
        return documents.read(PredictionRequest, job | today)
    except InvalidInput as error:
        raise in_words_of(inputs, error) from error


def _print_comparison(read: Imported, compared: PredictionTable | None, texts: Mapping[str, str]) -> None:
    """Print the present layout and, if requested, the best layouts beside it, with the commands to continue."""
    from autotuner.report.export import beside_best_report
    from autotuner.report.report import Lines, Report, Section
    from autotuner.report.words import cluster_in_words

    if compared is not None:
        job = _request(read, texts)
        on, batch, length = cluster_in_words(job.cluster), job.workload.global_batch_size, job.workload.seq_len
        console().print("")
        show(compared, lambda found: beside_best_report(read, found, cluster=on, batch=batch, seq_len=length))
    steps = Section(blocks=(Lines(items=tuple(_next_steps(read, compared, texts))),))
    show(read, lambda _: Report(headline="Next", sections=(steps,)))


def _next_steps(read: Imported, compared: PredictionTable | None, texts: Mapping[str, str]) -> Iterator[str]:
    said = {name: texts.get(name, word) for name, word in _JOB.items()}
    said |= {"stack": texts["stack"]} if texts["stack"] != "torch" else {}  # torch is the default
    options = " ".join(f"--{name.replace('_', '-')} {shlex.quote(text)}" for name, text in said.items())
    today = shlex.quote(read.label)
    if read.model is not None and "model" not in texts:
        yield "repeat this command with --save-model model.json, and write model.json in the place of MODEL"
    if compared is None:
        yield f"autotuner predict {options} --current {today} --format {read.format}"
    yield f"autotuner explain {options} --layout {today}"
    if compared is not None and compared.items:
        yield f"autotuner export {shlex.quote(compared.items[0].label)} {options} --format {read.format}"
