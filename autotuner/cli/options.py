"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from autotuner.errors import InvalidInput

__all__ = [
    "ClusterArgument",
    "GlobalBatch",
    "Json",
    "LayoutText",
    "LengthsText",
    "LinkHealthText",
    "Measured",
    "Model",
    "ObjectiveName",
    "OptionalCluster",
    "OptionalGlobalBatch",
    "OptionalLayoutText",
    "OptionalModel",
    "OptionalSeqLen",
    "OptionalStack",
    "OptionalTrialId",
    "Price",
    "ProfileText",
    "SeqLen",
    "Server",
    "Space",
    "StackName",
    "SweepId",
    "TariffText",
    "TrialId",
    "TrialOption",
    "stored_id",
]

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


def stored_id(text: str, kind: str, *, otherwise: str = "") -> str:
    """The text, if it can be the id of something stored.

    Raises:
        InvalidInput: It cannot: a path, for example.
    """
    if _ID.fullmatch(text):
        return text
    raise InvalidInput(kind, text, f"must be the id of a {kind}, as `autotuner sweep` prints it{otherwise}")


def _sweep_id(text: str) -> str:
    return stored_id(text, "sweep")


def _trial_id(text: str | None) -> str | None:
    return None if text is None else stored_id(text, "trial")


_MODEL = typer.Option("--model", help="Catalog name, or a JSON file: a config.json, or ours (docs/descriptions.md).")
_CLUSTER = typer.Option(
    "--cluster", help="'local', accelerator and count ('h100:64'), or a JSON file (docs/descriptions.md)."
)
_GLOBAL_BATCH = typer.Option("--global-batch", help="Sequences per optimizer step, whole job.")
_SEQ_LEN = typer.Option("--seq-len", help="Tokens per sequence.")
_STACK = typer.Option("--stack", help="Software that would run it; `catalog` lists them.")
_LAYOUT = typer.Option("--layout", help="As tables print it ('fsdp8 tp4 mb1 sp'), or JSON.")

Model = Annotated[str, _MODEL]
OptionalModel = Annotated[str | None, _MODEL]
ClusterArgument = Annotated[str, _CLUSTER]
OptionalCluster = Annotated[str | None, _CLUSTER]
GlobalBatch = Annotated[int, _GLOBAL_BATCH]
OptionalGlobalBatch = Annotated[int | None, _GLOBAL_BATCH]
SeqLen = Annotated[int, _SEQ_LEN]
OptionalSeqLen = Annotated[int | None, _SEQ_LEN]
StackName = Annotated[str, _STACK]
OptionalStack = Annotated[str | None, _STACK]
LayoutText = Annotated[str, _LAYOUT]
OptionalLayoutText = Annotated[str | None, _LAYOUT]

LengthsText = Annotated[
    str | None,
    typer.Option(
        "--lengths",
        help="How long sequences are, where not all have --seq-len tokens: a file of lengths, or '1-128:6, 512:3'.",
    ),
]
LinkHealthText = Annotated[
    str | None,
    typer.Option(
        "--link-health",
        help="Links that are not as the cluster says: a file, or lines such as '2_3; 0.06' ('|' parts them).",
    ),
]
Space = Annotated[
    str | None, typer.Option("--space", help='Axes to restrict, as JSON or a file: {"recompute": ["none"]}.')
]
ObjectiveName = Annotated[
    Literal["mfu", "tokens_per_s", "tokens_per_joule", "tokens_per_dollar", "tokens_per_kg_co2"],
    typer.Option("--objective", help="What to maximise, and show; the first two rank a job's layouts alike."),
]
ProfileText = Annotated[
    str | None,
    typer.Option(
        "--profile", help="Maximise several at once, by weight: 'mfu=2,tokens_per_dollar=1' (docs/objectives.md)."
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", min=0, help="US dollars per accelerator and hour, in the place of the list's."),
]
TariffText = Annotated[
    str | None,
    typer.Option(
        "--tariff",
        help="Where the energy is from ('france'), or fields as JSON or a file: {\"energy_price_per_kwh\": 0.2}.",
    ),
]
TrialOption = Annotated[
    str | None, typer.Option("--trial", help='Further settings of trials, as JSON or a file: {"num_runs": 2}.')
]
SweepId = Annotated[str, typer.Argument(callback=_sweep_id, help="The sweep's id, as `sweep` printed it.")]
TrialId = Annotated[
    str, typer.Argument(callback=_trial_id, help="A trial's id: its sweep's, a dash and its number, four digits.")
]
OptionalTrialId = Annotated[
    str | None,
    typer.Argument(
        callback=_trial_id,
        help="A trial's id: its sweep's, a dash and its number, four digits. Or describe a layout by options.",
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured", help="CSV or JSON of runs on this cluster (layout, step_time_s or tokens_per_s), to learn from."
    ),
]
Server = Annotated[
    str | None,
    typer.Option("--server", envvar="AUTOTUNER_SERVER", help="URL of a running service; else one in this process."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
