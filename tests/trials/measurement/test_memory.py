from __future__ import annotations

from threading import Thread

import torch

from trials.measurement.memory import MemoryWatch

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


def test_what_another_thread_frees_is_no_longer_held() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    held = [torch.empty(100 * KIB, dtype=torch.uint8)]
    other = Thread(target=held.clear)
    other.start()
    other.join()
    after = torch.empty(200 * KIB, dtype=torch.uint8)
    watch.stop()
    assert watch.peak_bytes == after.nbytes


def test_the_process_grew_by_the_most_that_was_held_after_the_first_step() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    watch.stop()
    before = watch.reserved_bytes
    held = torch.ones(512 * KIB * KIB, dtype=torch.uint8)  # large enough that malloc maps it and unmaps it
    del held
    after = torch.ones(128 * KIB * KIB, dtype=torch.uint8)
    assert after[-1] == 1
    # What other tests left in this process may be given back meanwhile: far less than 50 MiB.
    assert 0.9 * 512 * KIB * KIB < watch.reserved_bytes - before < 1.1 * 512 * KIB * KIB
