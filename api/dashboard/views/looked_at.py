"""What of a trial's page is looked at: the trainer whose words are shown, windows of the timelines, a rank."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from api.dashboard.charts.window import WHOLE, Window
from api.dashboard.views.timelines import Shown
from autotuner.core.trial_spec import ExportFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """What an address of the page asks for beside the trial."""

    format: ExportFormat | None = None
    show: Shown = "both"
    window: Window
    links_window: Window = WHOLE
    rank: int = 0

    def timeline_at(self, show: Shown, window: Window) -> str:
        """The address of another part of the timeline."""
        return f"{self._query(show=show, zoom=window)}#timeline"

    def links_at(self, window: Window) -> str:
        """The address of another part of the steps with and without a slow link."""
        return f"{self._query(near=window)}#links"

    def rank_at(self, rank: int) -> str:
        """The address of another rank's groups."""
        return f"{self._query(rank=rank)}#ranks"

    def format_at(self, other: ExportFormat) -> str:
        """The address of another trainer's words."""
        return f"{self._query(format=other)}#use"

    def _query(
        self,
        *,
        format: ExportFormat | None = None,  # noqa: A002  # as the address calls it
        show: Shown | None = None,
        zoom: Window | None = None,
        near: Window | None = None,
        rank: int | None = None,
    ) -> str:
        window, links_window = zoom or self.window, near or self.links_window
        said = {
            "format": str(format or self.format or ""),
            "show": "" if (show or self.show) == "both" else str(show or self.show),
            "zoom": "" if window.is_whole else str(window),
            "near": "" if links_window.is_whole else str(links_window),
            "rank": str(self.rank if rank is None else rank),
        }
        return f"?{urlencode({name: value for name, value in said.items() if value not in ('', '0')})}"
