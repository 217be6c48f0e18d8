"""What a forked rank is asked to do, and the errand that most are sent on: a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # exported, but not by name

from trials.job.attempt import attempt
from trials.runtime.rank import Place
from trials.runtime.report import Reporter

__all__ = ["Errand", "Task", "find_task", "run_trial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Where a rank finds its orders, and where it stands among those who have the same.

    Attributes:
        folder: Of this one errand, fresh, gone when it is over.
    """

    folder: Path
    place: Place

    def store(self) -> Store:
        """Where the ranks meet: a file, since all are on one host, so no port is taken."""
        return FileStore(str(self.folder / "store"), self.place.world_size)


Task = Callable[[Errand], int]
"""Done on every rank by a process that serves for nothing else afterwards; returns its exit code."""


def find_task(name: str) -> Task:
    """The task ``module:function``; importing the module is all that it may cost.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such function.
    """
    module, _, function = name.partition(":")
    task: Task = getattr(import_module(module), function)
    return task


def run_trial(errand: Errand) -> int:
    """Run the trial of ``spec.json`` and append what happens to ``reports.jsonl``."""
    spec_text = (errand.folder / "spec.json").read_text()
    reporter = Reporter(errand.folder / "reports.jsonl", rank=errand.place.rank)
    return attempt(spec_text, reporter, errand.place, store=errand.store())
