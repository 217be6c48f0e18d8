"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import typer

from autotuner.core.amounts import read_tokens
from autotuner.core.errors import InvalidInput

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


def stored_id(text: str, kind: str, *, otherwise: str = "") -> str:
    """The text, if it can be the id of something stored.

    Raises:
        InvalidInput: It cannot: a path, for example.
    """
    if _ID.fullmatch(text):
        return text
    raise InvalidInput(kind, text, f"must be the id of a {kind}, as `autotuner sweep` prints it{otherwise}")


def refuse_beside_trial(**options: Any) -> None:
    """Refuse options beside the id of a stored trial: it has its layout and its job, and they would be ignored.

    Raises:
        InvalidInput: One of the options is given.
    """
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", value, "must be left out when a trial is given")


def require_without_trial(**options: Any) -> None:
    """Require the options that only a stored trial makes needless.

    Raises:
        InvalidInput: One of the options is missing.
    """
    for name, value in options.items():
        if value is None:
            rule = "is required, unless the id of a stored trial is given"
            raise InvalidInput(f"--{name.replace('_', '-')}", value, rule)


def _sweep_id(text: str) -> str:
    return stored_id(text, "sweep")


def _trial_id(text: str | None) -> str | None:
    return None if text is None else stored_id(text, "trial")


def _tokens(text: object) -> int:
    """Return the number of tokens that ``8192``, ``8k`` or ``1M`` stands for.

    Raises:
        BadParameter: The text is no whole number of 1 or more, with or without k or m behind it.
    """
    try:
        return read_tokens("--seq-len", str(text))
    except InvalidInput as error:
        raise typer.BadParameter(f"{error.value!r} {error.rule}") from None


SELDOM = "Seldom used"
"""Panel of a command's help that holds the options that few people need."""

_MODEL = typer.Option(
    "--model",
    help="Model of the catalog (llama-3-8b), or a JSON file: a Hugging Face config.json, or a description as "
    "in docs/descriptions.md.",
)
_CLUSTER = typer.Option(
    "--cluster",
    help="This machine (local), an accelerator and a count (h100:64), a stored cluster, or a JSON file as "
    "in docs/descriptions.md.",
)
_GLOBAL_BATCH = typer.Option("--global-batch", help="Sequences per optimizer step, over the whole job.")
_SEQ_LEN = typer.Option(
    "--seq-len", parser=_tokens, metavar="TOKENS", help="Tokens per sequence, such as 8192 or 8k (k = 1,024)."
)
_STACK = typer.Option(
    "--stack", help="Training software to predict for. `autotuner stacks` lists the names.", rich_help_panel=SELDOM
)
_LAYOUT = typer.Option("--layout", help="Layout as tables print it ('fsdp8 tp4 mb1 sp'), or as JSON.")

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
        help="Sequence lengths, if they differ: a file, or lengths with how often each occurs ('1-128:6, 512:3').",
        rich_help_panel=SELDOM,
    ),
]
LinkHealthText = Annotated[
    str | None,
    typer.Option(
        "--link-health",
        help="Degraded links: a file, or lines such as '2_3; 0.06' (0.06 s of delay between nodes 2 and 3). "
        "The sign '|' separates lines.",
        rich_help_panel=SELDOM,
    ),
]
Space = Annotated[
    str | None,
    typer.Option(
        "--space",
        help='Options to search, as JSON or a JSON file: {"recompute": ["none", "full"]}.',
        rich_help_panel=SELDOM,
    ),
]
ObjectiveName = Annotated[
    Literal["mfu", "tokens_per_s", "tokens_per_joule", "tokens_per_dollar", "tokens_per_kg_co2"],
    typer.Option("--objective", help="Value to maximise. mfu and tokens_per_s give the same ranking."),
]
ProfileText = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Maximise several values, each with a weight: 'mfu=2,tokens_per_dollar=1' (docs/objectives.md).",
        rich_help_panel=SELDOM,
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        "--price",
        min=0,
        help="US dollars per accelerator-hour, instead of the cluster's price.",
        rich_help_panel=SELDOM,
    ),
]
TariffText = Annotated[
    str | None,
    typer.Option(
        "--tariff",
        help="Energy price and emissions: a region (france), or fields as JSON or a JSON file: "
        '{"energy_price_per_kwh": 0.2}.',
        rich_help_panel=SELDOM,
    ),
]
TrainerName = Annotated[
    str | None,
    typer.Option(
        "--trainer",
        help="Trainer that trials run. `autotuner trainers` lists the names.",
        rich_help_panel=SELDOM,
    ),
]
TrialOption = Annotated[
    str | None,
    typer.Option(
        "--trial",
        help='More settings of trials, as JSON or a JSON file: {"num_runs": 2}.',
        rich_help_panel=SELDOM,
    ),
]
SweepId = Annotated[
    str,
    typer.Argument(callback=_sweep_id, help="Id of the sweep, as `autotuner sweep` prints it (sw-k3v7q2mxn5)."),
]
TrialId = Annotated[
    str,
    typer.Argument(
        callback=_trial_id, help="Id of the trial: its sweep's id, a dash and four digits (sw-k3v7q2mxn5-0003)."
    ),
]
OptionalTrialId = Annotated[
    str | None,
    typer.Argument(
        callback=_trial_id,
        help="Id of a stored trial (sw-k3v7q2mxn5-0003). Leave it out to describe a job and a layout by options.",
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured",
        help="CSV or JSON file of measured runs on this cluster (layout, step_time_s or tokens_per_s), "
        "which corrects the predictions.",
        rich_help_panel=SELDOM,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="AUTOTUNER_SERVER",
        help="URL of a running service. Without it, this process does the work itself.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
