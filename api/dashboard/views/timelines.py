"""Sections that can be zoomed, with their links, for the template ``_zoomed.html``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from autotuner.report.lanes import WHOLE, Window
from autotuner.report.report import Section
from autotuner.report.timelines import Shown

SHOWN: tuple[Shown, ...] = ("both", "measured", "predicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A link that changes the content of a picture, such as its zoom. ``key`` is a keyboard shortcut for the link.

    ``is_on`` is True if the picture already has this content.
    """

    name: str
    address: str
    is_on: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoomed:
    """A section with a picture, with links that zoom or move the picture, and links that choose its content."""

    part: str
    """Query parameter that requests only this section."""
    section: Section
    choices: tuple[Way, ...] = ()
    """Links for measured, predicted or both; empty if only one of them exists."""
    moves: tuple[Way, ...] = ()
    """Links that zoom or move the window; links without an effect are left out."""

    @classmethod
    def of(
        cls,
        part: str,
        section: Section | None,
        window: Window,
        address: Callable[[Window], str],
        choices: tuple[Way, ...] = (),
    ) -> Self | None:
        """Return the section with links that zoom or move its picture; None if there is no section.

        Args:
            part: Query parameter that requests this section alone.
            section: The section; None if there is nothing to show.
            window: The part of the step that the picture shows.
            address: Returns the address of the page with another window.
            choices: Links to measured results, predicted results, or both.
        """
        if section is None:
            return None
        return cls(part=part, section=section, choices=choices, moves=_moves(window, address))


def _moves(window: Window, address: Callable[[Window], str]) -> tuple[Way, ...]:
    ways = (
        ("Zoom in", window.closer, "+"),
        ("Zoom out", window.farther, "-"),
        ("Earlier", window.earlier, "ArrowLeft"),
        ("Later", window.later, "ArrowRight"),
        ("Whole step", WHOLE, "0"),
    )
    return tuple(Way(name=name, address=address(to), key=key) for name, to, key in ways if str(to) != str(window))


def choices_of(shown: Shown, address: Callable[[Shown], str]) -> tuple[Way, ...]:
    """Return three links: to the measured results, to the predicted results, and to both.

    Args:
        shown: Results that the picture shows now.
        address: Returns the address of the page that shows the given results.
    """
    return tuple(Way(name=one.capitalize(), address=address(one), is_on=one == shown) for one in SHOWN)
