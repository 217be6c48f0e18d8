"""What pages show of the bandwidth curve of a layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.bandwidth import bandwidth_picture
from autotuner.search.explain.bandwidth_curve import BandwidthCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthView:
    """The picture, and what it says, in sentences without full stops."""

    picture: Markup
    sentences: tuple[str, ...]

    @classmethod
    def of(cls, curve: BandwidthCurve, width: int) -> Self | None:
        """None where the curve has no ways: on a single node there is nothing to see."""
        if not curve.ways:
            return None
        sentences = tuple(f"{sentence[0].upper()}{sentence[1:]}" for sentence in curve.sentences)
        return cls(picture=bandwidth_picture(curve, width), sentences=sentences)
