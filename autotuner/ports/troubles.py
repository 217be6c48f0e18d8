"""TroubleStore: what went wrong and stands unmended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.announcement import Trouble


class TroubleStore(Protocol):
    """What went wrong and stands unmended; every method is one transaction, as in ``Store``."""

    def read(self, *, since: float, limit: int = 20) -> Sequence[Trouble]:
        """No more than so many of each kind, by kind, the newest first.

        - Retunes whose last finished run was a regression or could not run, however long ago.
        - MFU gates that failed, stayed undecided or could not run since then.
        - Sweeps that failed since then, but for those of retunes and gates, and those whose very job a later sweep has
          measured.
        - Clusters whose last finished check failed, however long ago.
        - Webhooks with deliveries that were given up since then and not sent again, one for all of a webhook.
        """
        ...
