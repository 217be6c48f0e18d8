"""The inputs of the form, named by the path of what they set in the body of ``POST /sweeps``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from autotuner.core import documents
from autotuner.core.codec import to_plain, without_defaults
from autotuner.core.convergence_gate import LossGate
from autotuner.core.layout import OPTIONS
from autotuner.core.lines import read_lengths, read_links, written_lengths, written_links
from autotuner.core.link import LinkHealth
from autotuner.core.objective import Metric, Objective, Weight, profile_text, read_metrics, read_profile
from autotuner.core.option import Kind, OptionSpec
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.report.layouts import option_value

_Kind = Literal["integer", "number", "integers", "text", "choice", "switch", "links", "lengths", "profile", "metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input."""

    path: str
    """What it sets, dots between names (``budget.num_trials``)."""
    label: str
    kind: _Kind = "integer"
    default: Any = None
    """What the body has where it says nothing; None: nothing is said."""
    unit: str = ""
    """What people type, where that is not what the body has."""
    factor: float = 1.0
    """What one of what people type is in the body: 60 seconds of a minute."""
    options: tuple[tuple[str, str], ...] = ()
    """Values of a choice, with their words."""
    hint: str = ""
    """What an empty input means, or what a value does."""
    is_required: bool = False

    @property
    def id(self) -> str:
        """Of the element."""
        return id_of(self.path)

    @property
    def shown_default(self) -> str:
        """The default as people type it; empty where there is none."""
        return self.shown(self.default)

    def shown(self, value: Any) -> str:
        """A value of the body as people type it."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "on" if value else "off"
        if self.kind == "links" and not isinstance(value, str):
            return written_links(documents.read(LinkHealth, link) for link in value)
        if self.kind == "lengths" and not isinstance(value, str):
            return written_lengths(documents.read(LengthDistribution, value))
        if self.kind == "profile" and not isinstance(value, str):
            return profile_text(documents.read(Weight, one) for one in value)
        if isinstance(value, (list, tuple)):
            return ", ".join(map(str, value))
        if isinstance(value, (int, float)):
            return f"{round(value / self.factor, 9):.12g}"
        return str(value)

    def read(self, text: str) -> Any:
        """What was typed as the body has it; what is no number stays as it is, to be refused with its name.

        Raises:
            InvalidInput: Lines say no links, or no lengths; or words no profile, or no metrics.
        """
        match self.kind:
            case "switch":
                return text == "on"
            case "integers":
                return [_integer(part, 1) for part in text.replace(",", " ").split()]
            case "integer":
                return _integer(text, self.factor)
            case "number":
                return _number(text, self.factor)
            case "links":
                return [without_defaults(link) for link in read_links(text)]
            case "lengths":
                return to_plain(read_lengths(text))
            case "profile":
                return to_plain(read_profile(text, self.path))
            case "metrics":
                return to_plain(read_metrics(text, self.path))
        return text


def id_of(path: str) -> str:
    """The id of the element that sets what lies at the path."""
    return "in-" + path.replace(".", "-").replace("_", "-")


def _integer(text: str, factor: float) -> Any:
    plain = text.replace(",", "").replace("_", "")
    try:
        return round(float(plain) * factor) if factor != 1 else int(plain)
    except (ValueError, OverflowError):
        return text


def _number(text: str, factor: float) -> Any:
    try:
        return round(float(text.replace(",", "")) * factor, 12)
    except (ValueError, OverflowError):
        return text


_PERCENT: Mapping[str, Any] = {"kind": "number", "unit": "%", "factor": 0.01}
_SECONDS: Mapping[str, Any] = {"kind": "number", "unit": "s"}


def _of(cls: type[Any], prefix: str, name: str, label: str, **more: Any) -> Input:
    """An input of a field, with the field's own default."""
    (field,) = (each for each in fields(cls) if each.name == name)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return Input(path=f"{prefix}{name}", label=label, default=None if default is MISSING else default, **more)


WORKLOAD = (
    _of(Workload, "workload.", "seq_len", "Sequence length", unit="tokens", is_required=True),
    _of(Workload, "workload.", "lengths", "Lengths", kind="lengths", hint="all as long, or 1-128:6, 512:3"),
    _of(Workload, "workload.", "global_batch_size", "Global batch", unit="sequences", is_required=True),
    _of(
        Workload,
        "workload.",
        "optimizer_state_precision",
        "Optimizer states",
        kind="choice",
        options=(("fp32", "fp32"), ("bf16", "bf16")),
    ),
)

BUDGET = (
    _of(Budget, "budget.", "num_trials", "Trials", hint="at most"),
    _of(Budget, "budget.", "wall_clock_s", "Time", kind="number", unit="minutes", factor=60.0, hint="no limit"),
    _of(Budget, "budget.", "accelerator_hours", "Accelerator-hours", kind="number", unit="h", hint="no limit"),
    _of(Budget, "budget.", "min_gain", "Stop below a gain of", **_PERCENT, hint="0: never"),
    _of(Budget, "budget.", "patience", "Trials without a better one", hint="no limit"),
    _of(Budget, "budget.", "prune_below", "End trials below", **_PERCENT, hint="of the best so far"),
)

TRIAL = (
    _of(TrialSettings, "trial.", "measured_steps", "Measured steps, at least"),
    _of(TrialSettings, "trial.", "max_measured_steps", "Measured steps, at most"),
    _of(TrialSettings, "trial.", "target_interval", "Interval to reach", **_PERCENT),
    _of(TrialSettings, "trial.", "measuring_budget_s", "Measure for", **_SECONDS),
    _of(TrialSettings, "trial.", "warmup_steps", "Warm-up steps, at least"),
    _of(TrialSettings, "trial.", "max_warmup_steps", "Warm-up steps, at most"),
    _of(TrialSettings, "trial.", "profiled_steps", "Profiled steps"),
    _of(TrialSettings, "trial.", "timeout_s", "Time-out", **_SECONDS),
    _of(TrialSettings, "trial.", "faulty_step_timeout_s", "Time-out of a step under faults", **_SECONDS),
    _of(TrialSettings, "trial.", "memory_budget_bytes", "Memory of a rank", unit="GB", factor=1e9, hint="all of it"),
    _of(TrialSettings, "trial.", "num_runs", "Runs of each trial"),
    _of(TrialSettings, "trial.", "max_foreign_share", "Disturbed above", **_PERCENT),
    _of(TrialSettings, "trial.", "max_repeats", "Repeats of disturbed ones"),
    _of(TrialSettings, "trial.", "learning_rate", "Learning rate", kind="number"),
    _of(TrialSettings, "trial.", "num_languages", "Languages of sequences", hint="one for each data-parallel rank"),
    _of(TrialSettings, "trial.", "num_validation_batches", "Validation batches"),
    _of(TrialSettings, "trial.", "max_gradient_norm", "Gradient norm", kind="number", hint="not clipped"),
    _of(
        TrialSettings,
        "trial.",
        "proxy_layers_per_stage",
        "Layers of proxies",
        kind="integers",
        hint="two numbers; whole model",
    ),
)

LOSS_GATE = (
    _of(LossGate, "loss_gate.", "enabled", "Gate what changes the mathematics", kind="switch"),
    _of(LossGate, "loss_gate.", "num_steps", "Steps"),
    _of(LossGate, "loss_gate.", "num_lossy_steps", "Steps of lossy exchanges"),
    _of(LossGate, "loss_gate.", "num_seeds", "Pairs of runs", hint="2 to 10"),
    _of(LossGate, "loss_gate.", "tolerance", "Tolerance", **_PERCENT),
)

GENERAL = (
    Input(path="name", label="Name", kind="text", default=""),
    _of(
        Objective,
        "objective.",
        "metric",
        "Maximise",
        kind="choice",
        options=tuple((metric.value, metric.noun) for metric in Metric if metric.is_rate),
    ),
    Input(
        path="objective.profile",
        label="Weighed against each other",
        kind="profile",
        default=[],
        hint="the metric alone; or mfu=2,tokens_per_joule=1",
    ),
    Input(
        path="objective.front",
        label="Without a trade between",
        kind="metrics",
        default=[],
        hint="nothing; or mfu,tokens_per_joule,simplicity",
    ),
    Input(path="seed", label="Seed", default=0),
    Input(path="max_parallel_trials", label="Trials at once", default=1),
    Input(path="uses_history", label="Learn from earlier trials", kind="switch", default=True),
    Input(path="trainer", label="Trainer", kind="text"),
    Input(path="link_health", label="Links that are not healthy", kind="links", default=[]),
    Input(path="fault_trace", label="Fault trace", kind="text"),
    Input(path="fault_trace.num_steps", label="Steps under the trace", hint="twice those before its last fault"),
    Input(path="trial_cluster", label="Run trials on", kind="text", hint="the cluster itself"),
)

INPUTS: Mapping[str, Input] = {one.path: one for one in (*WORKLOAD, *BUDGET, *TRIAL, *LOSS_GATE, *GENERAL)}
"""Every input but those of model, cluster and space, which more than one element sets."""


# The axes of the space in the form: what suits the job, everything, or the values that somebody chose.

SUITS, EVERY, CHOSEN = "suits", "all", "chosen"
"""How an axis is set: nothing is said, every value is named, or those that were chosen."""

_USUAL = (
    *("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree"),
    *("data_parallel_shard_degree", "shard_level", "micro_batch_size", "recompute", "pipeline_schedule"),
    *("sequence_parallel", "precision", "attention_kernel", "compiled"),
)

_LETTERS = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "micro_batch_size": "mb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis."""

    name: str
    """The field of a layout."""
    label: str
    letters: str
    """As columns of layouts are headed; empty for others."""
    values: tuple[tuple[str, str], ...]
    """Of a switch or a choice, as JSON has them, with their words; empty for a number."""
    takes_all: bool
    """Whether a space can ask for every value."""
    is_usual: bool
    """Whether people choose it often."""

    @property
    def path(self) -> str:
        """Of the input that says how it is set, and of its values in the body."""
        return f"space.{self.name}"

    @property
    def option(self) -> OptionSpec:
        """All that is known of the field."""
        return OPTIONS[self.name]

    def in_words(self, values: Sequence[int] | None) -> str:
        """Values as people say them."""
        if values is None:
            return "every legal value"
        return ", ".join(option_value(self.name, value) for value in values)

    def read(self, how: str, given: Sequence[str]) -> Any:
        """The values as the body has them."""
        if how == EVERY:
            return [_json(value) for value, _ in self.values] if self.values else None
        if self.values:
            return [_json(value) for value in given]
        return [_axes_integer(part) for text in given for part in text.replace(",", " ").split()]


def axis_values(axis: Axis, values: Sequence[int] | None, suiting: Sequence[int] | None) -> tuple[str, tuple[str, ...]]:
    """How an axis with such values is set in the form, beside what suits the job."""
    if values == suiting:
        return SUITS, ()
    if values is None:
        return EVERY, ()
    said = tuple(_text(axis.option.to_plain(axis.option.value_of(value))) for value in values)
    if axis.values and set(said) == {value for value, _ in axis.values}:
        return EVERY, ()
    return CHOSEN, said if axis.values else (", ".join(said),)


def _axis(name: str) -> Axis:
    one = OPTIONS[name]
    values = tuple((_text(one.to_plain(value)), option_value(name, value)) for value in one.values)
    has_no_bounds = one.kind == Kind.DEGREE or one.searched is None
    return Axis(
        name=name,
        label=one.label,
        letters=_LETTERS.get(name, ""),
        values=values,
        takes_all=bool(values) or has_no_bounds,
        is_usual=name in _USUAL,
    )


def _text(value: int | str) -> str:
    """A value as a form has it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _json(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _axes_integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


_NAMES = tuple(each.name for each in fields(SearchSpace))  # type: ignore[arg-type]  # a dataclass at run time

AXES: Mapping[str, Axis] = {name: _axis(name) for name in (*_USUAL, *(each for each in _NAMES if each not in _USUAL))}
"""Every axis by its field, those that people choose often first."""
