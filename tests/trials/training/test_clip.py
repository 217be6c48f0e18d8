"""Clipping by the norm of the whole gradient; ``assert_alike`` holds every rank to this norm in all layouts.

Clipping before the reduction is another function of the batch, so a single process computes what it is compared with
from the gradient of each half of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotuner.core.choices import GradientClip, GradientSync, PipelineSchedule, Precision
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Trainer, for_each
from tests.trials.specs import (
    CONTEXT,
    FIVE_STEPS,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    THREE_STEPS,
    ZBV,
    ddp,
    fsdp,
    hsdp,
    trial_spec,
    zero,
)
from tests.trials.zygote import Zygote

MAX_NORM = 0.1
"""Far below the norm of the first steps, some 2: every step is clipped."""

TIED = tiny_model(name="tied", tied_embeddings=True)
UNCOMPRESSED: dict[str, Any] = {"gradient_sync": GradientSync.STRIDING, "sync_sparsity": 1, "sync_sign": False}
"""Replicas exchange all of what each has clipped by itself."""
PRE: dict[str, Any] = {"gradient_clip": GradientClip.PRE}
BUCKET: dict[str, Any] = {"gradient_clip": GradientClip.BUCKET}
SMALL: dict[str, Any] = {"gradient_bucket_bytes": 2**14}
EACH_ITS_OWN: dict[str, Any] = {"gradient_bucket_bytes": 1}
"""Every parameter is a bucket, so that their number is known."""
GPIPE: dict[str, Any] = {**PIPELINE, "pipeline_schedule": PipelineSchedule.GPIPE}
ADAPTIVE: dict[str, Any] = {**PIPELINE, "pipeline_schedule": PipelineSchedule.ADAPTIVE}

ON_STAGES = (tiny_model(), zero(2, **ZBV, micro_batch_size=2))
ON_ALL_AXES = (tiny_model(), fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2))


def clipping(max_norm: float, layout: Layout, model: TransformerSpec | None = None) -> Any:
    settings = replace(THREE_STEPS, max_gradient_norm=max_norm)
    return trial_spec(layout, model=model or tiny_model(), settings=settings)


@for_each([ON_STAGES], oracle=[ON_ALL_AXES])
def test_a_clipped_run_has_the_losses_of_a_clipped_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    settings = replace(FIVE_STEPS, max_gradient_norm=MAX_NORM)
    layouts = (cpu_layout(micro_batch_size=8), layout)
    whole, spread = (trainer.train(trial_spec(each, model=model, settings=settings)).losses for each in layouts)
    assert spread == pytest.approx(whole, rel=TOLERANCES[layout.precision].loss)
    assert whole != trainer.alone(layout, model).losses


@for_each(
    [(tiny_model(), ddp(2, **BUCKET, **SMALL, micro_batch_size=2)), (TIED, ddp(2, **PRE, **PIPELINE, **TENSOR))],
    oracle=[
        (tiny_model(), ddp(2, **PRE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **CONTEXT, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, precision=Precision.BF16, fp32_gradient_reduce=True, micro_batch_size=2)),
        (tiny_model(), zero(2, **PRE, **SMALL, micro_batch_size=2)),
        (tiny_model(), zero(2, **BUCKET, **SMALL, data_parallel_replicate_degree=2, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **PIPELINE, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **SEQUENCE, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **ZBV, micro_batch_size=1)),
        (TIED, ddp(2, **BUCKET, **ZBV, micro_batch_size=1)),
        (tiny_model(), ddp(2, **BUCKET, **ADAPTIVE, micro_batch_size=1)),
        (tiny_model(), zero(2, **BUCKET, **GPIPE, **TENSOR, micro_batch_size=2)),
    ],
)
def test_what_is_below_the_norm_trains_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    found = trainer.train(clipping(1e6, layout, model))
    trainer.assert_equal(found, layout, model)


class Halves:
    """What a single process says of two replicas that see half of the batch each."""

    def __init__(self, zygote: Zygote, folder: Path, model: TransformerSpec) -> None:
        run = zygote.run(trial_spec(cpu_layout(micro_batch_size=8), model=model), folder, task="halves")
        assert set(run.exit_codes) == {0}, run.logs
        self._own: list[dict[str, Tensor]] = torch.load(folder / "0.pt")

    def clipped_whole(self) -> dict[str, Tensor]:
        return self._mean([_scaled(own.values(), MAX_NORM) for own in self._own])

    def clipped_by_tensor(self) -> dict[str, Tensor]:
        bound = MAX_NORM / math.sqrt(len(self._own[0]))
        clipped = [{name: _scaled([one], bound) * one for name, one in own.items()} for own in self._own]
        return {name: (clipped[0][name] + clipped[1][name]) / 2 for name in clipped[0]}

    def _mean(self, scales: list[float]) -> dict[str, Tensor]:
        first, second = self._own
        return {name: (scales[0] * first[name] + scales[1] * second[name]) / 2 for name in first}


def _scaled(gradients: Iterable[Tensor], max_norm: float) -> float:
    return min(1.0, max_norm / math.sqrt(sum(float(one.double().norm()) ** 2 for one in gradients)))


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert set(found) == set(expected)
    scale = max(float(gradient.norm()) for gradient in expected.values())
    for name, gradient in expected.items():
        # sums in another order, as of ``TOLERANCES``; a tensor that is zero but for rounding by the largest
        assert float((found[name] - gradient).norm()) <= 1e-5 * (float(gradient.norm()) + 1e-3 * scale), name


@pytest.fixture(scope="module")
def halves(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    return Halves(zygote, tmp_path_factory.mktemp("halves"), tiny_model())


@pytest.fixture(scope="module")
def tied_halves(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    return Halves(zygote, tmp_path_factory.mktemp("tied-halves"), TIED)


@for_each(
    [(tiny_model(), ddp(2, **PRE, **SMALL, micro_batch_size=2))],
    oracle=[
        (tiny_model(), zero(2, **PRE, **SMALL, micro_batch_size=2)),
        (tiny_model(), ddp(2, **PRE, **SEQUENCE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **PRE, **PIPELINE, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **PIPELINE, micro_batch_size=2)),
        (TIED, zero(2, **PRE, **ZBV, micro_batch_size=2)),
        (TIED, ddp(2, **PRE, **TENSOR, **PIPELINE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **UNCOMPRESSED, micro_batch_size=2)),
        (tiny_model(), hsdp(2, 2, **UNCOMPRESSED, **TENSOR, micro_batch_size=2)),
        (TIED, ddp(2, **UNCOMPRESSED, **PIPELINE, micro_batch_size=2)),
        (TIED, zero(2, **UNCOMPRESSED, **ZBV, data_parallel_replicate_degree=2, micro_batch_size=2)),
    ],
)
def test_each_replica_clips_its_own_gradient_whole(
    model: TransformerSpec, layout: Layout, trainer: Trainer, halves: Halves, tied_halves: Halves
) -> None:
    found = trainer.train(clipping(MAX_NORM, layout, model))
    assert_close(found.gradients, (tied_halves if model is TIED else halves).clipped_whole())


@for_each(
    [(tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, micro_batch_size=2))],
    oracle=[
        (tiny_model(), zero(2, **BUCKET, **EACH_ITS_OWN, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, **PIPELINE, micro_batch_size=2)),
        (tiny_model(), ddp(2, **BUCKET, **EACH_ITS_OWN, **ZBV, micro_batch_size=2)),
    ],
)
def test_each_bucket_of_the_whole_model_is_clipped_to_its_part_of_the_norm(
    model: TransformerSpec, layout: Layout, trainer: Trainer, halves: Halves
) -> None:
    found = trainer.train(clipping(MAX_NORM, layout, model))
    assert_close(found.gradients, halves.clipped_by_tensor())


def test_one_bucket_is_the_whole_gradient(trainer: Trainer) -> None:
    runs = [trainer.train(clipping(MAX_NORM, ddp(2, **clip, micro_batch_size=4))) for clip in (PRE, BUCKET)]
    assert_close(runs[0].gradients, runs[1].gradients)


@for_each(
    [(TIED, ddp(2, **BUCKET, **SMALL, **TENSOR, micro_batch_size=4))],
    oracle=[
        (TIED, ddp(2, **BUCKET, **EACH_ITS_OWN, **SEQUENCE, **PIPELINE, micro_batch_size=2)),
        (TIED, ddp(2, **BUCKET, **EACH_ITS_OWN, **ZBV, micro_batch_size=2)),
        (tiny_model(), zero(2, **BUCKET, **SMALL, **SEQUENCE, micro_batch_size=4)),
        (tiny_model(), ddp(2, **BUCKET, **SMALL, **CONTEXT, micro_batch_size=4)),
    ],
)
def test_bounded_buckets_keep_the_whole_norm_and_equal_copies_on_all_ranks(
    model: TransformerSpec, layout: Layout, zygote: Zygote, tmp_path: Path
) -> None:
    run = zygote.run(clipping(MAX_NORM, layout, model), tmp_path, task="training")
    assert set(run.exit_codes) == {0}, run.logs
    saved = [torch.load(tmp_path / f"{rank}.pt") for rank in range(layout.world_size)]
    # fp32 keeps 7 digits of the bound; gradients this far above it fill their buckets, tied copies up to half of two
    assert all(of_rank["norm"] <= MAX_NORM * (1 + 1e-6) for of_rank in saved)
    last: dict[str, Tensor] = {}
    for of_rank in saved:
        for name, value in of_rank["last"].items():
            assert torch.equal(last.setdefault(name, value), value), name
