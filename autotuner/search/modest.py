"""Whether a sweep asks for what can be run at all: how long and how often, and a model that its cluster could hold."""

from __future__ import annotations

from autotuner.core.errors import InvalidInput
from autotuner.core.sweep import SweepRequest
from autotuner.core.units import format_bytes

_DAY_S = 86_400.0

_MOST_OF_TRIAL: dict[str, float] = {
    "timeout_s": 7 * _DAY_S,
    "measuring_budget_s": 7 * _DAY_S,
    "num_runs": 1000,
    "max_repeats": 1000,
    "warmup_steps": 100_000,
    "max_warmup_steps": 100_000,
    "measured_steps": 100_000,
    "max_measured_steps": 100_000,
    "profiled_steps": 1000,
    "num_validation_batches": 1000,
}
"""Beyond any use: a trial that takes a week holds its devices for a week."""

_MOST_GATE_STEPS = 100_000
_MOST_PARALLEL = 1000


def require_modest(request: SweepRequest) -> None:
    """Return if no number of the request is beyond use, and its cluster could hold one copy of the weights.

    Raises:
        InvalidInput: With the first that is.
    """
    for name, most in _MOST_OF_TRIAL.items():
        _require_at_most(f"trial.{name}", getattr(request.trial, name), most)
    for name in ("num_steps", "num_lossy_steps"):
        _require_at_most(f"loss_gate.{name}", getattr(request.loss_gate, name), _MOST_GATE_STEPS)
    _require_at_most("max_parallel_trials", request.max_parallel_trials, _MOST_PARALLEL)
    is_whole = not request.trial.proxy_layers_per_stage and request.trial_cluster is None
    if request.trainer is None and is_whole:
        _require_room(request)


def _require_at_most(field: str, value: float, most: float) -> None:
    if value > most:
        raise InvalidInput(field, value, f"must be {most:g} or less", most)


def _require_room(request: SweepRequest) -> None:
    cluster, model = request.job.cluster, request.job.model
    has_bytes = cluster.world_size * cluster.accelerator.memory_bytes
    needs_bytes = (2 if cluster.accelerator.kind != "cpu" else 4) * model.num_parameters
    if needs_bytes > has_bytes:
        needs = f"needs {format_bytes(needs_bytes)} for one copy of its weights"
        rule = f"{needs}, and all of {cluster.name} has {format_bytes(has_bytes)}"
        raise InvalidInput("model", model.name, rule)
