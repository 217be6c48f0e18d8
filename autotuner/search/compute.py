"""ComputeService: computations that a service runs in separate processes, so that they do not delay other requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeLoad:
    """The load of a compute service: how many computations run, how many wait, and how many were stopped."""

    num_running: int = 0
    """Number of computations that are running now."""
    num_waiting: int = 0
    """Number of computations that were requested and have not begun."""
    num_ended: int = 0
    """Number of computations that were stopped since the service started, because they took too long or needed too much
    memory."""


class ComputeService(Protocol):
    """A compute service: it calls functions for its clients, for example in the helper processes of a web service.

    The caller waits for the answer. The function, its arguments and its answer must be picklable.
    """

    def prepare(self) -> None:
        """Start helper processes, if there are any, in the background. The first call then need not wait for them."""
        ...

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that usually takes less than a second, and return its answer or raise its error.

        Raises:
            TooCostly: The function took too long, or needed too much memory.
            Busy: Too many other calls are waiting already.
        """
        ...

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that may take several seconds, and return its answer or raise its error.

        Some capacity stays reserved for calls of ``ask``, so that long calls do not delay short ones.

        Raises:
            TooCostly: The function took too long, or needed too much memory.
            Busy: Too many other calls are waiting already.
        """
        ...

    @property
    def standing(self) -> ComputeLoad:
        """Return the load of the service: how many computations run, how many wait, and how many were stopped."""
        ...

    def close(self) -> None:
        """Stop all computations that are running. Call it when the program ends, so that no helper process stays."""
        ...


class Inline:
    """Calls each function directly in the caller's own process, for commands that serve only one user."""

    standing = ComputeLoad()

    def prepare(self) -> None:
        """Do nothing, because a direct call needs no preparation."""

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function directly and return its answer."""
        return function(*args, **kwargs)

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call the function directly and return its answer."""
        return function(*args, **kwargs)

    def close(self) -> None:
        """Do nothing, because no function runs in the background."""
