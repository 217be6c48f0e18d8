"""A few steps of training on forked ranks, and how far they end from those of one process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autotuner.core.choices import BatchBalance, GradientSync
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout
from tests.oracle.covering import WORKLOAD, Case
from tests.patience import COMPILING_PATIENCE_S
from tests.trials.fork_server import ForkServer, Run
from tests.trials.specs import trial_spec

_EXCEPTION = re.compile(r"[\w.]*(Error|Unsupported): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a training was seen to do."""

    norm: float
    """Norm of the whole model's first gradient: AdamW forgets its scale, so the parameters would not tell."""
    losses: tuple[float, ...]
    """By step."""
    first: Mapping[str, Tensor]
    """Whole parameters before the first step, by name."""
    last: Mapping[str, Tensor]
    """Whole parameters after the last step, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far a training ends from that of one process."""

    loss: float
    """Largest relative difference of a step's loss."""
    norm: float
    """Relative difference of the first gradient's norm."""
    parameters: float
    """Largest distance of a parameter tensor, relative to how far one process moved it and to what the last digit of
    its values weighs."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The first failure's last line of a training that did not come to its end."""

    message: str


class Oracle:
    """Trains layouts and compares them with one process that sees the whole batch at once.

    Attributes:
        num_steps: Enough for an update to change the next loss and the next update.
    """

    num_steps = 2

    def __init__(self, fork_server: ForkServer, folder: Path) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._references: dict[tuple[str, Workload, Layout], Training] = {}
        self._num_runs = 0

    def distance(self, case: Case) -> Distance | Failed:
        """How far the layout's training ends from its reference, or why it does not end; legal or not."""
        found = self._train(case)
        if isinstance(found, Failed):
            return found
        return distance(found, self._reference(case))

    def _reference(self, case: Case) -> Training:
        """One process, one micro-batch, nothing recomputed or compiled, the same number format.

        Replicas that average their parameters every few steps are no one process by design: a process for each, or as
        many as deal its sequences among each other.
        """
        plain = cpu_layout(precision=case.layout.precision, fp8_recipe=case.layout.fp8_recipe)
        apart = replace(plain, **_exchange_of(case.layout))
        layout = replace(apart, micro_batch_size=WORKLOAD.global_batch_size // apart.data_parallel_degree)
        key = case.model.name, case.workload, layout
        if key not in self._references:
            found = self._train(replace(case, layout=layout))
            assert isinstance(found, Training), found
            self._references[key] = found
        return self._references[key]

    def _train(self, case: Case) -> Training | Failed:
        self._num_runs += 1
        run = self._fork_server.run(_spec(case), self._folder / str(self._num_runs), task="training")
        if any(run.exit_codes):
            return Failed(_last_words(run))
        return _read(run.saved())


def _exchange_of(layout: Layout) -> dict[str, Any]:
    """How many models train apart for some steps, what they exchange, and which sequences each of them reads."""
    if layout.gradient_sync != GradientSync.DILOCO:
        return {}
    names = ["data_parallel_replicate_degree", "gradient_sync", "sync_period", "batch_balance"]
    if layout.batch_balance != BatchBalance.NONE:
        names += ["data_parallel_shard_degree", "shard_level"]  # dealt among more ranks, a replica reads others
    return {name: getattr(layout, name) for name in names}


def distance(found: Training, expected: Training) -> Distance:
    """Between two trainings of the same model from the same first values."""
    assert set(found.last) == set(expected.last), set(found.last) ^ set(expected.last)
    return Distance(
        loss=max(abs(a - b) / abs(b) for a, b in zip(found.losses, expected.losses, strict=True)),
        norm=abs(found.norm - expected.norm) / expected.norm,
        parameters=max(_moved_apart(found, expected, name) for name in expected.last),
    )


def _moved_apart(found: Training, expected: Training, name: str) -> float:
    """In bf16 the update of a value near 1 is less than its last digit, which either training may round either way."""
    first, last = expected.first[name], expected.last[name]
    return _norm(found.last[name] - last) / (_norm(last - first) + torch.finfo(last.dtype).eps * _norm(last))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))


def _spec(case: Case) -> TrialSpec:
    settings = TrialSettings(warmup_steps=0, measured_steps=Oracle.num_steps, timeout_s=COMPILING_PATIENCE_S)
    return trial_spec(case.layout, model=case.model, workload=case.workload, settings=settings)


def _read(saved: Sequence[dict[str, Any]]) -> Training:
    first: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for of_rank in saved:
        first |= of_rank["first"]
        last |= of_rank["last"]
    return Training(norm=saved[-1]["norm"], losses=tuple(saved[-1]["losses"]), first=first, last=last)


def _last_words(run: Run) -> str:
    """The error of the rank that says most about itself: not that a peer is gone."""
    lines = [line for log in run.logs if (line := _last_error(log))]
    own = [line for line in lines if not _is_of_peers(line)]
    return " ".join([*(own or lines)[:1], f"exit codes {json.dumps(run.exit_codes)}"])


def _last_error(log: str) -> str:
    """The exception that came first, for others are raised from it; the last line where none is named."""
    lines = log.strip().splitlines()
    named = [line for line in lines if _EXCEPTION.match(line)]
    return next(iter(named or lines[-1:]), "")


def _is_of_peers(error: str) -> bool:
    """Whether it says that another rank is gone, and nothing of the own one."""
    return "peer" in error or "gloo" in error.lower()
