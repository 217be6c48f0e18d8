"""What needs somebody now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.announcement import Trouble
from autotuner.core.documents import extended
from autotuner.search.upkeep.attention import attention, place_of
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleView(Trouble):
    """Something that went wrong and that nobody has mended yet.

    Attributes:
        path: Of the page where somebody goes on with it, below the service's address.
    """

    path: str

    @classmethod
    def of(cls, trouble: Trouble) -> TroubleView:
        """The trouble with its place."""
        return extended(cls, trouble, path=place_of(trouble))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionList:
    """Everything that needs somebody, the worst kind first and the newest of each; no more than 20 of a kind."""

    items: tuple[TroubleView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """What needs somebody by now."""
        found = attention(app.store, now=app.clock.now())
        return cls(items=tuple(TroubleView.of(trouble) for trouble in found))
