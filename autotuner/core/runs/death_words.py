"""What libraries say when they run out of memory, or lose a peer."""

from __future__ import annotations

__all__ = ["COMMUNICATION", "OUT_OF_LIMITED_MEMORY", "OUT_OF_MEMORY"]

OUT_OF_MEMORY = (
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",  # the same on other platforms
    "std::bad_alloc",
    "Cannot allocate memory",  # strerror(ENOMEM), from libraries that allocate for themselves
    "out of memory",  # CUDA's allocator, its runtime (a context, pinned memory), NCCL and Triton
    "_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN
)

OUT_OF_LIMITED_MEMORY = (
    "Resource temporarily unavailable",  # strerror(EAGAIN): the kernel has no room for the stack of a new thread
    "can't start new thread",  # Python's words for that
)
"""Also said where there are too many threads; a process whose memory is limited lacks memory long before."""

COMMUNICATION = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection closed...typically caused by a remote worker crashing",  # gloo of torch 2.13
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",  # gloo, of the message that a rank waits for
    "Application timeout caused pair closure",  # gloo, of all other messages to that peer
    "Unable to find address for",  # gloo, of a network interface that is not there
    "Socket Timeout",
    "wait timeout",  # the rendezvous store
    "NCCL error",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)
