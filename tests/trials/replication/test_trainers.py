"""Lossy exchanges in plain torch trainers on gloo ranks: around FSDP2's shards, and as DDP's hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trials.replication.trainers import small_model
from tests.trials.zygote import Zygote

NUM_RANKS = 4
EVERY_CHUNK = sum(-(-value.numel() // 16) for value in small_model().parameters())


@pytest.fixture(scope="module")
def sharded(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return trained(zygote, tmp_path_factory.mktemp("fsdp"), "fsdp")


@pytest.fixture(scope="module")
def hooked(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return trained(zygote, tmp_path_factory.mktemp("ddp"), "ddp")


def trained(zygote: Zygote, folder: Path, task: str) -> list[Any]:
    run = zygote.have_done(f"tests.trials.replication.trainers:{task}", folder, NUM_RANKS)
    assert set(run.exit_codes) == {0}, run.logs
    return [torch.load(folder / f"{rank}.pt") for rank in range(NUM_RANKS)]


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        # AdamW divides a gradient by its size: what rounding left of a tiny one moves a parameter by a share of lr
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_an_exchange_of_all_components_trains_shards_as_hybrid_shards_are_trained(sharded: list[Any]) -> None:
    assert_near(sharded[0]["all of demo"], sharded[0]["hybrid"])


@pytest.mark.parametrize("name", ["all of demo", "demo", "random", "averaged"])
def test_replicas_of_shards_keep_the_same_bits(name: str, sharded: list[Any]) -> None:
    for of_rank in sharded[1:]:
        for parameter, value in sharded[0][name].items():
            assert torch.equal(of_rank[name][parameter], value)


@pytest.mark.parametrize("name", ["demo", "random", "averaged"])
def test_a_lossy_exchange_trains_something_else(name: str, sharded: list[Any]) -> None:
    with pytest.raises(AssertionError):
        assert_near(sharded[0][name], sharded[0]["hybrid"])


def test_an_optimizer_that_was_saved_and_loaded_trains_on_as_if_it_had_not(sharded: list[Any]) -> None:
    for of_rank in sharded:
        for parameter, value in of_rank["demo"].items():
            assert torch.equal(of_rank["demo, saved and loaded"][parameter], value)


@pytest.mark.parametrize("name", ["full", "all of demo"])
def test_a_hook_that_sends_everything_trains_as_ddp_does(name: str, hooked: list[Any]) -> None:
    assert_near(hooked[0][name]["parameters"], hooked[0]["plain"]["parameters"])


def test_replicas_under_a_hook_keep_the_same_bits(hooked: list[Any]) -> None:
    for of_rank in hooked[1:]:
        for parameter, value in hooked[0]["demo"]["parameters"].items():
            assert torch.equal(of_rank["demo"]["parameters"][parameter], value)


def test_a_hook_counts_what_all_buckets_sent(hooked: list[Any]) -> None:
    assert hooked[0]["demo"]["payload"] == EVERY_CHUNK * 2 * (4 + 1)  # two components, with a byte each
