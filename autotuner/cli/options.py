"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "ClusterArgument",
    "GlobalBatch",
    "Json",
    "Model",
    "OptionalCluster",
    "OptionalGlobalBatch",
    "OptionalModel",
    "OptionalSeqLen",
    "OptionalStack",
    "SeqLen",
    "Server",
    "Space",
    "StackName",
    "SweepId",
    "TrialOption",
]

_MODEL = typer.Option("--model", help="Catalog name, or a JSON file: ours or a config.json.")
_CLUSTER = typer.Option("--cluster", help="'local', accelerator and count ('h100:64'), or a JSON file.")
_GLOBAL_BATCH = typer.Option("--global-batch", help="Sequences per optimizer step, whole job.")
_SEQ_LEN = typer.Option("--seq-len", help="Tokens per sequence.")
_STACK = typer.Option("--stack", help="Software that would run it; `catalog` lists them.")

Model = Annotated[str, _MODEL]
OptionalModel = Annotated[str | None, _MODEL]
ClusterArgument = Annotated[str, _CLUSTER]
OptionalCluster = Annotated[str | None, _CLUSTER]
GlobalBatch = Annotated[int, _GLOBAL_BATCH]
OptionalGlobalBatch = Annotated[int | None, _GLOBAL_BATCH]
SeqLen = Annotated[int, _SEQ_LEN]
OptionalSeqLen = Annotated[int | None, _SEQ_LEN]

Space = Annotated[
    str | None, typer.Option("--space", help='Axes to restrict, as JSON or a file: {"recompute": ["none"]}.')
]
TrialOption = Annotated[
    str | None, typer.Option("--trial", help='Further settings of trials, as JSON or a file: {"num_runs": 2}.')
]
StackName = Annotated[str, _STACK]
OptionalStack = Annotated[str | None, _STACK]
SweepId = Annotated[str, typer.Argument(help="The sweep's id, as `sweep` printed it.")]
Server = Annotated[
    str | None,
    typer.Option("--server", envvar="AUTOTUNER_SERVER", help="URL of a running service; else one in this process."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
