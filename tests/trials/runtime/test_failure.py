from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from autotuner.core.errors import InvalidInput
from autotuner.core.trial import FailureKind
from trials.runtime.failure import NonFiniteLoss, classify, headline

CASES: tuple[tuple[BaseException, FailureKind], ...] = (
    (MemoryError(), FailureKind.OOM),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), FailureKind.OOM),
    (
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        FailureKind.OOM,
    ),
    (RuntimeError("std::bad_alloc"), FailureKind.OOM),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), FailureKind.OOM),
    (dist.DistBackendError("NCCL error in: ProcessGroupNCCL.cpp:94"), FailureKind.COMMUNICATION),
    (dist.DistNetworkError("The client socket has failed to connect"), FailureKind.COMMUNICATION),
    (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]"), FailureKind.COMMUNICATION),
    (RuntimeError("[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1ms"), FailureKind.COMMUNICATION),
    (RuntimeError("Application timeout caused pair closure"), FailureKind.COMMUNICATION),
    (
        RuntimeError(
            "[enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth9"
        ),
        FailureKind.COMMUNICATION,
    ),
    (ConnectionResetError("Connection reset by peer"), FailureKind.COMMUNICATION),
    (NonFiniteLoss(3, float("nan")), FailureKind.NUMERICS),
    (InvalidInput("layout.tensor_parallel_degree", 3, "must divide"), FailureKind.CRASH),
    (ValueError("shapes do not match"), FailureKind.CRASH),
)


@pytest.mark.parametrize(("error", "kind"), CASES, ids=lambda value: repr(value)[:40])
def test_an_exception_is_classified_by_its_type_and_words(error: BaseException, kind: FailureKind) -> None:
    assert classify(error) == kind


def test_what_an_exception_was_raised_from_counts() -> None:
    wrapped = RuntimeError("stage 1 failed to run backward")
    wrapped.__cause__ = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    assert classify(wrapped) == FailureKind.OOM


def test_a_thread_that_cannot_start_is_want_of_memory_only_where_memory_is_limited() -> None:
    error = RuntimeError("Resource temporarily unavailable")
    assert classify(error) == FailureKind.CRASH
    assert classify(error, memory_was_limited=True) == FailureKind.OOM
    assert classify(ValueError("shapes do not match"), memory_was_limited=True) == FailureKind.CRASH


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == FailureKind.CRASH


def test_a_headline_is_one_line_that_names_the_type() -> None:
    assert headline(RuntimeError("it  broke\nat line 3")) == "RuntimeError: it broke"
    assert headline(MemoryError()) == "MemoryError"
