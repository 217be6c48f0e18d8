"""Where one attempt at a trial keeps its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["TrialFiles"]


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """The directory of an attempt, and what lies in it."""

    directory: Path

    @property
    def spec(self) -> Path:
        """What to run; written before any rank is started."""
        return self.directory / "spec.json"

    @property
    def reports(self) -> Path:
        """What the ranks append to."""
        return self.directory / "reports.jsonl"

    @property
    def agent_log(self) -> Path:
        """What torchrun itself prints."""
        return self.directory / "torchrun.log"

    @property
    def rank_logs(self) -> Path:
        """Holds, at some depth, a directory per rank with what it printed; its name is the rank."""
        return self.directory / "ranks"
