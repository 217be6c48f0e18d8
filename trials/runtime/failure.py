"""What kind of death an exception was."""

from __future__ import annotations

import torch
import torch.distributed as dist

from autotuner.core.trial import COMMUNICATION, OUT_OF_LIMITED_MEMORY, OUT_OF_MEMORY, FailureKind


class NonFiniteLoss(ArithmeticError):
    """The loss is no number, so the steps after it mean nothing."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss of step {step} is {loss}")


def classify(error: BaseException, *, memory_was_limited: bool = False) -> FailureKind:
    """The kind of failure, from the exception, the ones it was raised from, and their words.

    A process that died under a memory limit may not even have had room for the stack of a thread.
    """
    out_of_memory = OUT_OF_MEMORY + OUT_OF_LIMITED_MEMORY if memory_was_limited else OUT_OF_MEMORY
    causes = list(_chain(error))
    text = "\n".join(str(cause) for cause in causes)
    if _any_is(causes, NonFiniteLoss):
        return FailureKind.NUMERICS
    if _any_is(causes, MemoryError, torch.OutOfMemoryError) or _mentions(text, out_of_memory):
        return FailureKind.OOM
    if _any_is(causes, dist.DistError, ConnectionError, TimeoutError) or _mentions(text, COMMUNICATION):
        return FailureKind.COMMUNICATION
    return FailureKind.CRASH


def headline(error: BaseException) -> str:
    """The exception as one line for a table."""
    words = " ".join(str(error).split("\n", 1)[0].split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _any_is(causes: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in causes)


def _mentions(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)
