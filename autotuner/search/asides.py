"""Asides: computations that a service runs in separate processes, so that they do not delay other requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsidesStanding:
    """Numbers of computations that are running now, are waiting, and ended without an answer."""

    num_running: int = 0
    """Number of computations that are running now."""
    num_waiting: int = 0
    """Number of computations that were requested and have not begun."""
    num_ended: int = 0
    """Number of computations that ended without an answer since the service started, because they took too long or too
    much memory."""


class Asides(Protocol):
    """A place where functions are computed, for example in helper processes of a web service.

    The caller waits for the answer. The function, its arguments and its answer must be picklable.
    """

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that takes a moment at most, and return its answer or raise its error.

        Raises:
            TooCostly: The function took too long, or too much memory.
            Busy: Too many calls wait already.
        """
        ...

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that may take seconds, and return its answer or raise its error.

        Some capacity stays reserved for calls of ``ask``, so that long calls do not delay short ones. The errors
        are those of ``ask``.
        """
        ...

    @property
    def standing(self) -> AsidesStanding:
        """Return the numbers of computations that are running now, are waiting, and ended without an answer."""
        ...

    def close(self) -> None:
        """Stop all computations that are running."""
        ...


class Inline:
    """Calls each function directly, in the caller's own process: a command has no other requests that would wait."""

    standing = AsidesStanding()

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function directly and return its answer."""
        return function(*args, **kwargs)

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function directly and return its answer."""
        return function(*args, **kwargs)

    def close(self) -> None:
        """Do nothing: no computation continues after its call."""
