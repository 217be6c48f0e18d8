from __future__ import annotations

import torch

from trials.measuring.memory import Ledger, MemoryWatch

KIB = 1024


def test_the_peak_is_the_most_that_was_held_together() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    first = torch.empty(100 * KIB, dtype=torch.uint8)
    second = torch.empty(200 * KIB, dtype=torch.uint8)
    del first
    third = torch.empty(50 * KIB, dtype=torch.uint8)
    del second, third
    watch.stop()
    assert watch.peak_bytes == 300 * KIB


def test_what_was_allocated_before_does_not_count() -> None:
    before = torch.empty(500 * KIB, dtype=torch.uint8)
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    del before
    after = torch.empty(100 * KIB, dtype=torch.uint8)
    watch.stop()
    assert watch.peak_bytes == after.nbytes


def test_a_block_whose_free_was_missed_is_struck_off_when_its_place_is_taken() -> None:
    ledger = Ledger()
    ledger.allocate(1000, 100)
    ledger.allocate(2000, 100)
    ledger.allocate(1050, 100)  # lies on the first
    assert ledger.highest_bytes == 200
    ledger.allocate(900, 2000)  # lies on everything
    assert ledger.highest_bytes == 2000


def test_a_free_of_an_unknown_block_changes_nothing() -> None:
    ledger = Ledger()
    ledger.free(1000)
    ledger.allocate(1000, 100)
    ledger.free(1000)
    ledger.allocate(3000, 50)
    assert ledger.highest_bytes == 100


def test_the_process_grew_by_the_most_that_was_held_after_the_first_step() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    watch.stop()
    before = watch.reserved_bytes
    held = torch.ones(64 * KIB * KIB, dtype=torch.uint8)  # large enough that malloc maps it and unmaps it
    del held
    after = torch.ones(16 * KIB * KIB, dtype=torch.uint8)
    assert after[-1] == 1
    assert 0.9 * 64 * KIB * KIB < watch.reserved_bytes - before < 1.1 * 64 * KIB * KIB  # a few pages come and go
