from __future__ import annotations

from autotuner.core.jobs.exchange_ladder import exchange_ladder
from autotuner.core.layouts.choice import GradientSync


def test_a_space_that_names_no_lossy_exchange_gets_no_details() -> None:
    assert exchange_ladder({}) == {}
    assert exchange_ladder({"gradient_sync": None}) == {}
    assert exchange_ladder({"gradient_sync": (GradientSync.FULL,)}) == {}


def test_each_exchange_brings_the_details_that_it_has() -> None:
    assert set(exchange_ladder({"gradient_sync": (GradientSync.DILOCO,)})) == {"sync_period", "payload_precision"}
    of_demo = exchange_ladder({"gradient_sync": (GradientSync.FULL, GradientSync.DEMO)})
    assert set(of_demo) == {"sync_top_k", "sync_sign", "payload_precision"}
    assert "sync_sparsity" in exchange_ladder({"gradient_sync": (GradientSync.RANDOM,)})


def test_what_somebody_named_stays_as_it_was_named() -> None:
    named = {"gradient_sync": (GradientSync.DEMO,), "sync_sign": (True,), "sync_top_k": (16,)}
    assert set(exchange_ladder(named)) == {"payload_precision"}
