"""``autotuner import``: what runs today, read from a trainer's configuration."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from os.path import isfile
from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import (
    SELDOM,
    Json,
    OptionalCluster,
    OptionalGlobalBatch,
    OptionalModel,
    OptionalSeqLen,
    OptionalStack,
    Server,
)


def import_(
    config: Annotated[
        list[str],
        typer.Argument(
            help="Launch script, configuration file, or log that starts with the arguments. "
            "Write - for standard input, or -- before flags."
        ),
    ],
    model: OptionalModel = None,
    cluster: OptionalCluster = None,
    global_batch: OptionalGlobalBatch = None,
    seq_len: OptionalSeqLen = None,
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
    stack: OptionalStack = None,
    save_model: Annotated[
        Path | None,
        typer.Option(
            "--save-model",
            help="File to write the model of the configuration to. --model reads it.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Read the layout that you use today from a launch script or a configuration.

    With --cluster, it also predicts the best layout that your trainer can run.
    It never runs a script.

    Example: autotuner import train.sh --cluster h100:64
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.current import current_job, save
    from autotuner.cli.inputs import cluster_name, may_be_stored
    from autotuner.cli.said_layout import ranks_of
    from autotuner.core import documents
    from autotuner.core.requests import ImportRequest
    from autotuner.report.export import beside_best_report, import_report
    from autotuner.report.terminal import render

    text = _text(config)
    with connect(server, keep=may_be_stored(cluster or "")) as client:
        num_ranks = ranks_of(client, cluster) if ranks is None and cluster is not None else ranks
        asked = {"text": text, "format": wanted, "num_ranks": num_ranks}
        read = client.import_configuration(documents.read(ImportRequest, asked))
        if save_model is not None:
            save(read, save_model)
        named = model or (str(save_model) if save_model else None)
        job = current_job(read, model=named, cluster=cluster, global_batch=global_batch, seq_len=seq_len, stack=stack)
        if not as_json:
            console().print(render(import_report(read)))
        compared = None if cluster is None else client.predict(job.request(read))
    if as_json:
        print_json(documents.write(read) | {"compared": documents.write(compared)})
        return
    if compared is not None:
        on, batch, length = cluster_name(job.cluster or ""), job.global_batch or 0, job.seq_len or 0
        best = beside_best_report(read, compared, cluster=on, batch=batch, seq_len=length)
        console().print("", render(best))
    console().print(render(job.next_steps(read, compared)))


def _text(config: Sequence[str]) -> str:
    """What is to be read: of standard input, of a file, or the words themselves where they are flags."""
    from autotuner.cli.inputs import read_open, read_text

    if config == ["-"]:
        return read_open(sys.stdin, "-", "config")
    first = config[0]
    if len(config) > 1 or not (isfile(first) or _is_name(first)):
        return first if len(config) == 1 else shlex.join(config)
    return read_text(first, "config", errors="replace")


def _is_name(word: str) -> bool:
    """Whether it can only be the name of a file, even where there is none."""
    return not word.startswith("--") and not any(mark in word for mark in " =\n")
