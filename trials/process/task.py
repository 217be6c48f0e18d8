"""Tasks that a forked rank can run, usually a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.trials.job.attempt import attempt
from autotuner.trials.rank import RankInfo, Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The folder of a task (such as a trial) on one host, and the rank of this process in the task."""

    folder: Path
    """Empty folder that is only for this task and is deleted afterwards."""
    rank_info: RankInfo

    def store(self) -> Store:
        """Return the store through which the ranks of a task find each other. It is a file, so the ranks need no port.

        All ranks of the task are on one host. The file stays as long as the folder of the task. A store that knows the
        number of ranks would delete the file after that number of ranks have closed it. Then a rank that opens the file
        later would wait for ever.
        """
        return FileStore(str(self.folder / "store"))


Task = Callable[[TaskContext], int]
"""Function that every rank runs in a process of its own, which does nothing else afterwards; it returns the exit
code."""


def find_task(name: str) -> Task:
    """Import and return the function that ``name`` gives as ``module:function``.

    Raises:
        ImportError: The module does not exist.
        AttributeError: The module has no such function.
    """
    module, _, function = name.partition(":")
    task: Task = getattr(import_module(module), function)
    return task


def run_trial(context: TaskContext) -> int:
    """Run the trial in ``spec.json`` of the task's folder, and return the exit code.

    Reports are appended to ``reports.jsonl`` in the same folder.
    """
    spec_text = (context.folder / "spec.json").read_text()
    reporter = Reporter(context.folder / "reports.jsonl", rank=context.rank_info.rank)
    return attempt(spec_text, reporter, context.rank_info, store=context.store())
