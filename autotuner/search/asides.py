"""Asides: what a service has its computations done by, so that none of them stands in the way of another request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsidesStanding:
    """Counts of the computations that run, wait and ended without an answer."""

    num_running: int = 0
    """Computed at this moment."""
    num_waiting: int = 0
    """Asked for and not begun."""
    num_ended: int = 0
    """Ended without an answer since the service began: they took too long or too much memory."""


class Asides(Protocol):
    """Calls a function that others may have to wait for; function, arguments and answer can be pickled."""

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Return or raise what the function does; it takes a moment at most.

        Raises:
            TooCostly: It took too long, or too much memory.
            Busy: Too many wait already.
        """
        ...

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Do the same for a function that may take seconds; some room is kept for those that ``ask``."""
        ...

    @property
    def standing(self) -> AsidesStanding:
        """Return how many run, wait and were ended."""
        ...

    def close(self) -> None:
        """End whatever is computed."""
        ...


class Inline:
    """Calls the function where it was asked for: in a command, nobody else waits."""

    standing = AsidesStanding()

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function."""
        return function(*args, **kwargs)

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function."""
        return function(*args, **kwargs)

    def close(self) -> None:
        """End whatever is computed."""
