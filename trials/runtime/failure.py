"""What kind of death an exception was."""

from __future__ import annotations

import torch
import torch.distributed as dist

from autotuner.domain.runs.trial import FailureKind

__all__ = ["NonFiniteLoss", "classify", "headline"]


class NonFiniteLoss(ArithmeticError):
    """The loss is no number, so the steps after it mean nothing."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss of step {step} is {loss}")


_OUT_OF_MEMORY = (
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",  # the same on other platforms
    "std::bad_alloc",
    "Cannot allocate memory",  # strerror(ENOMEM), from libraries that allocate for themselves
    "out of memory",  # CUDA's allocator, its runtime (a context, pinned memory), NCCL and Triton
    "_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN
)

_OUT_OF_LIMITED_MEMORY = (
    "Resource temporarily unavailable",  # strerror(EAGAIN): the kernel has no room for the stack of a new thread
    "can't start new thread",  # Python's words for that
)
"""Also said where there are too many threads; a process whose memory is limited lacks memory long before."""

_COMMUNICATION = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",  # gloo
    "Unable to find address for",  # gloo, of a network interface that is not there
    "Socket Timeout",
    "wait timeout",  # the rendezvous store
    "NCCL error",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)


def classify(error: BaseException, *, memory_was_limited: bool = False) -> FailureKind:
    """The kind of failure, from the exception, the ones it was raised from, and their words.

    A process that died under a memory limit may not even have had room for the stack of a thread.
    """
    out_of_memory = _OUT_OF_MEMORY + _OUT_OF_LIMITED_MEMORY if memory_was_limited else _OUT_OF_MEMORY
    causes = list(_chain(error))
    text = "\n".join(str(cause) for cause in causes)
    if _any_is(causes, NonFiniteLoss):
        return FailureKind.NUMERICS
    if _any_is(causes, MemoryError, torch.OutOfMemoryError) or _mentions(text, out_of_memory):
        return FailureKind.OOM
    if _any_is(causes, dist.DistError, ConnectionError, TimeoutError) or _mentions(text, _COMMUNICATION):
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
