"""Two replicas of a plain model under each hook, and what they found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.training.clipping import Overlap, average, bucket_bound, clip, squared_norms
from tests.training.clipping_ranks import MAX_NORM, NUM_LAYERS, NUM_STEPS, model, own_gradients
from tests.trials.fork_server import ForkServer
from tests.trials.joined import Noted


# ---------------------------------------------------------------- bound
@pytest.mark.parametrize(
    ("gradients", "max_norm", "found"),
    [((3.0, 4.0), 1.0, (0.6, 0.8)), ((3.0, 4.0), 6.0, (3.0, 4.0)), ((0.0, 0.0), 1.0, (0.0, 0.0))],
    ids=["above the norm", "below it", "zero"],
)
def test_gradients_above_the_norm_are_scaled_down_to_it_and_others_stay_as_they_are(
    gradients: tuple[float, float], max_norm: float, found: tuple[float, float]
) -> None:
    held = [torch.tensor([gradients[0]]), torch.tensor([[gradients[1]]])]
    clip(held, torch.tensor(math.hypot(*gradients), dtype=torch.float64), max_norm)
    assert [float(gradient) for gradient in held] == pytest.approx(found)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_buckets_within_their_bound_are_within_the_norm_together(norms: list[float], max_norm: float) -> None:
    buckets = [torch.tensor([norm]) for norm in norms]
    bound = bucket_bound(max_norm, torch.tensor(float(len(buckets)), dtype=torch.float64))
    for bucket in buckets:
        clip([bucket], bucket.double().norm(), bound)
    # fp32 keeps 7 digits of every scale
    assert float(torch.stack(list(squared_norms(buckets))).sum().sqrt()) <= max_norm * (1 + 1e-6)


# ---------------------------------------------------------------- hooks
def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    # fp32 keeps 7 digits, and a mean of two rounds once; sums of squares in another order differ by as much
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


@pytest.fixture(scope="module")
def found(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both replicas found, by hook."""
    folder = tmp_path_factory.mktemp("replicas")
    first, second = fork_server.have_done("tests.training.clipping_ranks:train", folder, 2).saved()
    for name in first:
        for mine, theirs in zip(first[name]["steps"], second[name]["steps"], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True)), name
    return first


def own(step: int) -> list[list[Tensor]]:
    """Gradients of each replica's own batch."""
    return [own_gradients(rank, step, model()) for rank in range(2)]


def norm(gradients: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(gradient.double().norm()) ** 2 for gradient in gradients))


def hooks_clipped(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    return [min(1.0, max_norm / norm(gradients)) * gradient for gradient in gradients]


def by_layer(gradients: Sequence[Tensor], bound: float) -> list[Tensor]:
    return [one for gradient in gradients for one in hooks_clipped([gradient], bound)]


def mean(replicas: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [(first + second) / 2 for first, second in zip(*replicas, strict=True)]


@pytest.mark.parametrize("step", range(NUM_STEPS))
def test_a_hook_that_clips_nothing_averages(found: Any, step: int) -> None:
    expected = mean(own(step))
    for name in ("post", "unclipped pre", "unclipped bucket"):
        assert_close(found[name]["steps"][step], expected)


def test_the_way_may_be_narrower_than_the_gradients(found: Any) -> None:
    expected = mean(own(2))
    # bf16 keeps 8 bits, of each replica's gradient and of their sum
    torch.testing.assert_close(found["post in bf16"]["steps"][2], expected, rtol=2**-6, atol=1e-4)
    assert found["post in bf16"]["bytes"] == found["post"]["bytes"] // 2


@pytest.mark.parametrize("step", range(NUM_STEPS))
def test_each_replica_is_clipped_whole(found: Any, step: int) -> None:
    expected = mean([hooks_clipped(gradients, MAX_NORM) for gradients in own(step)])
    assert_close(found["pre"]["steps"][step], expected)


def test_each_bucket_is_clipped_to_its_part_of_the_norm_once_buckets_are_formed(found: Any) -> None:
    bound = MAX_NORM / math.sqrt(NUM_LAYERS)
    expected = mean([by_layer(gradients, bound) for gradients in own(2)])
    assert_close(found["bucket"]["steps"][2], expected)


def test_a_model_that_is_part_of_another_gets_the_number_of_buckets_of_the_whole(found: Any) -> None:
    bound = MAX_NORM / math.sqrt(4 * NUM_LAYERS)
    expected = mean([by_layer(gradients, bound) for gradients in own(2)])
    assert_close(found["bucket of more"]["steps"][2], expected)


def test_one_bucket_is_the_whole_gradient(found: Any) -> None:
    for one, whole in zip(found["one bucket"]["steps"], found["pre"]["steps"], strict=True):
        assert_close(one, whole)


def test_clipped_gradients_never_exceed_the_norm(found: Any) -> None:
    for name in ("pre", "bucket", "bucket of more", "one bucket"):
        # fp32 keeps 7 digits of the bound
        assert all(norm(step) <= MAX_NORM * (1 + 1e-6) for step in found[name]["steps"]), name


def test_buckets_start_before_backward_ends_and_whole_gradients_wait(found: Any) -> None:
    """Of eight layers' buckets all but the last start while backward runs."""
    assert found["post"]["share"] >= 0.5
    assert found["bucket"]["share"] >= 0.5
    assert found["pre"]["share"] == 0.0
    assert found["one bucket"]["share"] == 0.0


def test_reductions_are_over_when_the_backward_pass_ends(alone: dist.ProcessGroup) -> None:
    begun: list[Noted] = []

    def all_reduce(buffer: Tensor) -> Noted:
        begun.append(Noted(buffer))
        return begun[-1]

    replica = DistributedDataParallel(model(), process_group=alone)
    average(replica, all_reduce=all_reduce)
    replica(torch.ones(1, next(replica.parameters()).shape[1])).sum().backward()
    assert [reduction.was_awaited for reduction in begun] == [True] * len(begun)
    assert begun


# ---------------------------------------------------------------- overlap
@pytest.mark.parametrize(
    ("events", "share"),
    [
        ((0, 30, 0, 10, None, 0), 0.75),  # the last gradient is of the next step
        ((0, None, 8, 0), 0.0),
        ((), None),
    ],
    ids=["a gradient follows one of two", "reductions behind the backward passes", "nothing is reduced"],
)
def test_a_reduction_overlaps_where_a_gradient_of_the_same_backward_pass_follows_it(
    events: tuple[int | None, ...], share: float | None
) -> None:
    overlap = Overlap()
    overlap.reduction(1)
    overlap.reset()
    for event in events:
        if event is None:
            overlap.end_backward()
        elif event:
            overlap.reduction(event)
        else:
            overlap.gradient()
    assert overlap.share == share


def test_every_gradient_of_watched_parameters_is_reported() -> None:
    overlap, module = Overlap(), nn.Linear(2, 2)
    overlap.watch(module.parameters())
    overlap.gradient()
    overlap.reduction(4)
    module(torch.ones(2)).sum().backward()
    assert overlap.overlapped_bytes == 4
