"""A training that is saved in one layout and goes on in another, beside one that nobody interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import GradientSync, Precision
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings, TrialSpec
from tests.builders import cpu_layout, tiny_model
from tests.oracle.tolerance import agrees
from tests.oracle.training import Training, distance
from tests.trials.fork_server import ForkServer
from tests.trials.specs import (
    CONTEXT,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    ZBV,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
    zero,
)

FOUR_STEPS = TrialSettings(warmup_steps=0, measured_steps=4)
"""Two in each layout: the third is trained with moments that were saved, the fourth sees what it made of them."""

TINY = tiny_model()
TIED = tiny_model(name="tied", tied_embeddings=True)
SPARSE = tiny_model(name="sparse", experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32))
BF16: dict[str, Any] = {"precision": Precision.BF16}
EXPERTS: dict[str, Any] = {"expert_parallel_degree": 2}

Switch = tuple[TransformerSpec, Layout, Layout]

PIPE_TO_SHARDS: Switch = (
    TIED,  # its table is tied, and lies on both stages
    ddp(2, **PIPELINE, micro_batch_size=2),
    fsdp(2, micro_batch_size=4),
)
SWITCHES: tuple[Switch, ...] = (
    (TIED, fsdp(4, micro_batch_size=2), ddp(2, **PIPELINE, micro_batch_size=2)),
    (TINY, zero(2, **TENSOR, micro_batch_size=4), hsdp(2, 2, micro_batch_size=2)),
    (TINY, hsdp(2, 2, micro_batch_size=2), zero(2, **ZBV, micro_batch_size=2)),
    (TINY, ddp(2, **TENSOR, micro_batch_size=4), fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
    (TINY, fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2), cpu_layout(micro_batch_size=8)),
    (TINY, cpu_layout(micro_batch_size=8), ddp(2, **CONTEXT, micro_batch_size=4)),
    (TIED, zero(2, **ZBV, micro_batch_size=2), fsdp(2, **SEQUENCE, micro_batch_size=4)),
    (TINY, zero(4, **BF16, micro_batch_size=2), ddp(2, **PIPELINE, **BF16, micro_batch_size=2)),
    (SPARSE, fsdp(2, **EXPERTS, micro_batch_size=4), ddp(2, **TENSOR, micro_batch_size=4)),
    (SPARSE, ddp(2, **PIPELINE, micro_batch_size=2), fsdp(4, **EXPERTS, micro_batch_size=2)),
)

SAME: tuple[tuple[TransformerSpec, Layout], ...] = (
    (TIED, fsdp(2, **SEQUENCE, **PIPELINE, **BF16, micro_batch_size=2)),
    (TINY, ddp(2, **TENSOR, micro_batch_size=4)),
    (SPARSE, fsdp(4, **EXPERTS, micro_batch_size=2)),
    (TINY, zero(2, **ZBV, **BF16, micro_batch_size=2)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What one half of a training left behind."""

    losses: tuple[float, ...]
    last: dict[str, Tensor]
    transfers: tuple[dict[str, Any], ...]


class Halves:
    """Trains a model in two layouts, one after the other."""

    def __init__(self, fork_server: ForkServer, folder: Path) -> None:
        self._fork_server = fork_server
        self._folder = folder

    def left(self, spec: TrialSpec) -> Half:
        """The first half."""
        return self._run(spec, "leaving", self._folder / "first")

    def gone_on(self, spec: TrialSpec) -> Half:
        """The second half, from where the first one left."""
        folder = self._folder / "second"
        folder.mkdir()
        (folder / "checkpoint").write_text(str(self._folder / "first" / "checkpoint"))
        return self._run(spec, "going on", folder)

    def refused(self, spec: TrialSpec, task: str) -> str:
        """What the ranks say that cannot do it."""
        run = self._fork_server.run(spec, self._folder / "refused", task=task)
        assert any(run.exit_codes)
        return "".join(run.logs)

    def _run(self, spec: TrialSpec, task: str, folder: Path) -> Half:
        saved = self._fork_server.run(spec, folder, task=task).saved()
        return Half(
            losses=tuple(saved[0]["losses"]),
            last={name: value for of_rank in saved for name, value in of_rank.get("last", {}).items()},
            transfers=tuple(of_rank["transfer"] for of_rank in saved),
        )


@pytest.fixture
def halves(fork_server: ForkServer, tmp_path: Path) -> Halves:
    return Halves(fork_server, tmp_path)


def uninterrupted(fork_server: ForkServer, folder: Path, spec: TrialSpec) -> Training:
    saved = fork_server.run(spec, folder, task="training").saved()
    first, last = (
        {name: value for of_rank in saved for name, value in of_rank[when].items()} for when in ("first", "last")
    )
    return Training(norm=1.0, losses=tuple(saved[0]["losses"]), first=first, last=last)


def of(model: TransformerSpec, layout: Layout, **changes: Any) -> TrialSpec:
    return trial_spec(layout, model=model, settings=FOUR_STEPS, **changes)


def named(cases: Iterable[tuple[TransformerSpec, *tuple[Layout, ...]]], *, marks: Any = ()) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].name} {' to '.join(map(str, case[1:]))}", marks=marks) for case in cases]


@pytest.mark.parametrize(
    ("model", "before", "behind"), [*named([PIPE_TO_SHARDS]), *named(SWITCHES, marks=pytest.mark.oracle)]
)
def test_a_training_that_goes_on_in_another_layout_learns_as_if_nobody_had_switched(
    model: TransformerSpec, before: Layout, behind: Layout, fork_server: ForkServer, halves: Halves, tmp_path: Path
) -> None:
    whole = cpu_layout(micro_batch_size=8, precision=before.precision)
    expected = uninterrupted(fork_server, tmp_path / "whole", of(model, whole))
    first, second = halves.left(of(model, before)), halves.gone_on(of(model, behind))
    found = replace(expected, losses=(*first.losses, *second.losses), last=second.last)
    assert agrees(distance(found, expected), before.precision), distance(found, expected)


@pytest.mark.parametrize(
    ("model", "layout"),
    [*named([(TINY, zero(2, **BF16, micro_batch_size=4))]), *named(SAME, marks=pytest.mark.oracle)],
)
def test_a_training_that_goes_on_in_its_own_layout_has_the_same_bits(
    model: TransformerSpec, layout: Layout, fork_server: ForkServer, halves: Halves, tmp_path: Path
) -> None:
    expected = uninterrupted(fork_server, tmp_path / "whole", of(model, layout))
    first, second = halves.left(of(model, layout)), halves.gone_on(of(model, layout))
    assert (*first.losses, *second.losses) == expected.losses
    assert all(torch.equal(value, expected.last[name]) for name, value in second.last.items())


@pytest.mark.oracle
def test_a_checkpoint_has_twelve_bytes_per_parameter_and_four_with_sign_descent(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    signs = ddp(2, gradient_sync=GradientSync.DEMO, micro_batch_size=4)
    moments, none = (
        Halves(fork_server, tmp_path / layout.gradient_sync.label).left(of(TINY, layout)).transfers
        for layout in (fsdp(2, micro_batch_size=4), signs)
    )
    assert sum(one["own_bytes"] for one in moments) == 12 * TINY.num_parameters
    assert [one["own_bytes"] for one in none] == [4 * TINY.num_parameters] * 2  # replicas hold copies
    assert moments[0]["kinds"] == ("masters", "exp_avg", "exp_avg_sq")
    assert none[0]["kinds"] == ("masters",)


@pytest.mark.oracle
def test_moments_that_were_not_saved_begin_anew(halves: Halves) -> None:
    signs = ddp(2, gradient_sync=GradientSync.DEMO, micro_batch_size=4)
    halves.left(of(TINY, signs))
    second = halves.gone_on(of(TINY, fsdp(2, micro_batch_size=4)))
    assert second.transfers[0]["kinds"] == ("masters",)
    assert second.transfers[0]["num_steps"] == 2


@pytest.mark.oracle
def test_replicas_that_train_apart_are_saved_only_where_they_have_just_become_one(halves: Halves) -> None:
    apart = ddp(2, gradient_sync=GradientSync.DILOCO, sync_period=3, micro_batch_size=4)
    assert "only at these steps all replicas have the same model" in halves.refused(of(TINY, apart), "leaving")
    halves.left(of(TINY, replace(apart, sync_period=2)))
    halves.gone_on(of(TINY, ddp(2, micro_batch_size=4)))


@pytest.mark.oracle
def test_an_optimizer_that_keeps_something_else_is_refused(halves: Halves) -> None:
    madgrad = OptimizerSettings(name=OptimizerName.MADGRAD, learning_rate=1e-3)
    assert "cannot be loaded into another layout" in halves.refused(
        of(TINY, cpu_layout(micro_batch_size=8), optimizer=madgrad), "leaving"
    )
