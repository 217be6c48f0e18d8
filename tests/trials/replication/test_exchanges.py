"""Replicators on two gloo ranks, against what one process computes of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trials.replication.replicators import DENSE, KEEPING, REPLICATORS, SHAPES, gradients
from tests.trials.replication.tasks import NUM_STEPS
from tests.trials.zygote import Zygote

TASKS = "tests.trials.replication.tasks"


def done(zygote: Zygote, folder: Path, task: str) -> list[Any]:
    run = zygote.have_done(f"{TASKS}:{task}", folder, 2)
    assert set(run.exit_codes) == {0}, run.logs
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def exchanged(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return done(zygote, tmp_path_factory.mktemp("exchanges"), "exchanges")


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def mean(step: int) -> Tensor:
    return (flat(gradients(0, step)) + flat(gradients(1, step))) / 2


@pytest.mark.parametrize("name", REPLICATORS)
def test_every_replica_gets_the_same_bits(name: str, exchanged: list[Any]) -> None:
    for first, second in zip(*(of_rank[name]["steps"] for of_rank in exchanged), strict=True):
        assert [one.shape for one in first] == [torch.Size(shape) for shape in SHAPES]
        assert torch.equal(flat(first), flat(second))


@pytest.mark.parametrize("name", DENSE)
def test_what_sends_everything_is_the_mean_gradient(name: str, exchanged: list[Any]) -> None:
    for step, found in enumerate(exchanged[0][name]["steps"]):
        # a cosine transform and back rounds sixteen products of fp32 twice
        torch.testing.assert_close(flat(found), mean(step), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", KEEPING)
def test_what_sends_little_keeps_the_rest(name: str, exchanged: list[Any]) -> None:
    everything = sum(flat(gradients(0, step)).square().sum() for step in range(NUM_STEPS))
    kept = flat(exchanged[0][name]["state"]["residuals"]).square().sum()
    assert 0.1 * everything < kept < everything


@pytest.mark.parametrize("name", [name for name in KEEPING if "demo" not in name])
def test_elements_arrive_sooner_or_later(name: str, exchanged: list[Any]) -> None:
    """What was exchanged and what is still kept are together what both replicas learnt, but for the decay."""
    arrived = sum(flat(found) for found in exchanged[0][name]["steps"])
    kept = sum(flat(of_rank[name]["state"]["residuals"]) for of_rank in exchanged) / 2
    learnt = sum(mean(step) for step in range(NUM_STEPS))
    # a step forgets a thousandth of what is kept, five steps of values up to four half a hundredth each
    torch.testing.assert_close(arrived + kept, learnt, rtol=0.0, atol=0.05)


@pytest.mark.parametrize(
    ("name", "payload_bytes"),
    [
        ("full", 4 * 714),
        ("demo", (24 + 3 + 2 + 0 + 1 + 17) * 2 * (4 + 1)),  # chunks, of which two components with a byte each
        ("wide demo", (1 + 1 + 1 + 0 + 1 + 1) * 8 * (4 + 2)),
        ("short demo", (24 + 3 + 2 + 0 + 1 + 17) * 2 * (2 + 1)),
        ("random", (48 + 6 + 3 + 0 + 1 + 33) * 4),
        ("short random", (48 + 6 + 3 + 0 + 1 + 33) * 2),
        ("striding", (48 + 6 + 3 + 0 + 1 + 33) * 4),
    ],
)
def test_the_payload_is_counted_by_the_byte(name: str, payload_bytes: int, exchanged: list[Any]) -> None:
    assert [of_rank[name]["payload"] for of_rank in exchanged] == [payload_bytes] * 2


def test_a_replicator_goes_on_from_a_state_as_if_nothing_had_been(
    exchanged: list[Any], zygote: Zygote, tmp_path: Path
) -> None:
    for of_rank in done(zygote, tmp_path, "goes_on"):
        for name, last in of_rank.items():
            assert torch.equal(flat(last), flat(exchanged[0][name]["steps"][-1])), name


def test_averaged_parameters_are_alike_behind_every_second_step_alone(zygote: Zygote, tmp_path: Path) -> None:
    first, second = done(zygote, tmp_path, "averages")
    assert [(one["due"], one["payload"]) for one in first] == [(False, 0), (True, 4 * 714)] * 2
    for step, (own, other) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(flat(own["parameters"]), flat(other["parameters"])) == (step % 2 == 1)
    # four gradients of size 1 are added and averaged in another order
    expected = 1.0 + sum(mean(step) for step in range(4))
    torch.testing.assert_close(flat(first[-1]["parameters"]), expected, rtol=1e-5, atol=1e-5)
