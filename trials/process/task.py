"""Tasks of a forked rank; mostly a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # exported, but not by name

from trials.job.attempt import attempt
from trials.rank import RankInfo, Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """A task's folder, and which of the ranks that do the task this process is."""

    folder: Path
    """Fresh, for this task alone, and gone when it is over."""
    rank_info: RankInfo

    def store(self) -> Store:
        """Return the store in which the ranks meet: a file, since all are on one host, so no port is taken.

        It stays as long as the folder. A store that knows how many ranks there are removes its file when as many were
        closed and none is open; a rank that opens it then, or goes on reading, would wait for ever.
        """
        return FileStore(str(self.folder / "store"))


Task = Callable[[TaskContext], int]
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


def run_trial(context: TaskContext) -> int:
    """Run the trial of ``spec.json`` and append what happens to ``reports.jsonl``."""
    spec_text = (context.folder / "spec.json").read_text()
    reporter = Reporter(context.folder / "reports.jsonl", rank=context.rank_info.rank)
    return attempt(spec_text, reporter, context.rank_info, store=context.store())
