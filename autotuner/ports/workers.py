"""WorkerStore: who runs sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.run import KnownWorker


class WorkerStore(Protocol):
    """Workers as they told of themselves; every method is one transaction, as in ``Store``."""

    def tell(self, worker: KnownWorker) -> None:
        """Store it in the place of what it told before, and forget workers that were silent for a day by then."""
        ...

    def forget(self, name: str) -> None:
        """It has stopped; one that is not stored is no error."""
        ...

    def list(self) -> Sequence[KnownWorker]:
        """Those that told of themselves last come first."""
        ...
