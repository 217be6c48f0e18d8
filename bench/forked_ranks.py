"""Ranks that are forked from this process, do a task and answer."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

_Answer = TypeVar("_Answer")


def on_ranks(num_ranks: int, task: Callable[[int, Path], _Answer]) -> list[_Answer]:
    """What every rank answers, each a process of its own; they share a folder in memory, where they may meet.

    Raises:
        RuntimeError: One failed; with its words.
    """
    context = get_context("fork")
    told = context.SimpleQueue()

    def answer(rank: int, folder: Path) -> None:
        try:
            told.put((rank, True, task(rank, folder)))
        except BaseException:
            told.put((rank, False, traceback.format_exc()))
        os._exit(0)  # torch's own clean-up has nothing left to do

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        processes = [context.Process(target=answer, args=(rank, Path(folder))) for rank in range(num_ranks)]
        for process in processes:
            process.start()
        answers = []
        for _ in processes:
            answers.append(told.get())
            if not answers[-1][1]:
                break
        for process in processes:
            process.join(1.0)
            process.kill()
    failed = [words for _, went_well, words in answers if not went_well]
    if failed:
        raise RuntimeError(failed[0])
    return [value for _, _, value in sorted(answers, key=lambda each: each[0])]
