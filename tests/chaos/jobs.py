"""The sweeps that are disturbed, as a client asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotuner.core.choices import Recompute
from autotuner.core.codec import to_plain
from autotuner.core.space import SearchSpace
from tests.builders import cpu_cluster, tiny_model, tiny_space


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sweep to ask for."""

    name: str
    body: dict[str, Any]
    """Of the request."""
    length_s: float
    """About what it takes where nothing disturbs it: faults strike within."""
    is_ordered: bool = True
    """Which trial is made of which layout is the same in every run: one runs after the other."""


_SIMULATED = {"base": "h100:8", "name": "pretended", "engine": "simulated"}

_SWEEP: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": _SIMULATED,
    "workload": {"seq_len": 4096, "global_batch_size": 64},
    "trial": {"max_repeats": 0},
    "uses_history": False,
}

_ALL_OF_THEM = {"num_trials": 500, "min_gain": 0.0, "prune_below": 0.0}

SAMPLED = Job(
    name="sampled",
    body={**_SWEEP, "budget": {"num_trials": 7, "min_gain": 0.0, "prune_below": 0.0}},
    length_s=3.0,
)
"""The sampler chooses a few of many layouts, each by the outcome of those before it."""

_SMALL_SPACE = to_plain(
    SearchSpace().with_axes(
        recompute=(Recompute.FULL,), micro_batch_size=(1,), pipeline_parallel_degree=(1,), sequence_parallel=(False,)
    )
)

PARALLEL = Job(
    name="parallel",
    body={
        **_SWEEP,
        "space": _SMALL_SPACE,
        "max_parallel_trials": 3,
        "budget": _ALL_OF_THEM,
    },
    length_s=3.0,
    is_ordered=False,
)
"""All layouts of a small space, three at a time."""

RANKS = Job(
    name="ranks",
    body={
        "model": to_plain(tiny_model()),
        "cluster": to_plain(cpu_cluster(2)),
        "workload": {"seq_len": 64, "global_batch_size": 8},
        "space": to_plain(
            tiny_space(recompute=(Recompute.NONE,), micro_batch_size=(1,), pipeline_parallel_degree=(1,))
        ),
        "budget": _ALL_OF_THEM,
        "trial": {"warmup_steps": 1, "measured_steps": 3, "profiled_steps": 0, "max_repeats": 0},
        "uses_history": False,
    },
    length_s=3.0,
    is_ordered=False,
)
"""All layouts of a small space, by ranks that are forked, followed, judged and ended as any, but train nothing."""

BRIEF = Job(
    name="brief",
    body={**_SWEEP, "space": _SMALL_SPACE, "budget": {"num_trials": 3, "min_gain": 0.0, "prune_below": 0.0}},
    length_s=1.0,
)
"""A few layouts of a small space, for tests that everybody waits for."""

JOBS = (SAMPLED, PARALLEL, RANKS)
