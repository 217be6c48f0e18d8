"""Recording: the profiler's events of one step, which are operations of the host and kernels of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile, record_function
from torch.distributed import Work

from autotuner.training.communicator import WAIT
from autotuner.trials.processes import silence_stderr

FORWARD = "trial forward"
"""Name of a stage's forward pass in a recording."""

UNNAMED_WAIT = "_c10d_functional::wait_tensor"
"""Name of the wait for a functional collective; it does not say which one."""

_OP_TYPES = dict(
    enumerate(
        (
            *("broadcast", "all_reduce", "all_reduce", "reduce", "all_gather", "all_gather", "all_gather"),
            *("gather", "scatter", "reduce_scatter", "all_to_all", "all_to_all", "send", "recv", "recv", "barrier"),
            "reduce_scatter",
        )
    )
)
"""Names of c10d's OpType (torch/csrc/distributed/c10d/Work.hpp, 2.11 and 2.13); gloo's reduce-scatter does not report
its own."""


class Event(NamedTuple):
    """An operation on a thread of the host, or a kernel or copy on the device.

    A kernel has the same ``correlation`` as the operation that launched it; 0 means that the operation is not known.
    Threads of the host that the profiler does not follow, such as threads of gloo, have other thread numbers.
    """

    start_ns: int
    end_ns: int
    name: str
    thread: int
    correlation: int


class Recording:
    """The operations and kernels that the profiler recorded in one step; empty until the recording has ended."""

    def __init__(self) -> None:
        self.host: list[Event] = []
        self.device: list[Event] = []

    def fill(self, events: Sequence[Any]) -> None:
        """Set the operations and kernels of the recorded step from the results of torch's profiler, named kineto."""
        for event in events:
            if event.device_type() == DeviceType.CPU:
                self.host.append(_event(event, event.start_thread_id(), _correlation(event)))
            elif not event.is_user_annotation():
                self.device.append(_event(event, event.device_resource_id(), event.linked_correlation_id()))


def _correlation(event: Any) -> int:
    """Return the number by which a kernel refers to the operation that launched it.

    Calls of CUDA's runtime or driver get 0, because CUPTI numbers them separately, also from 1.
    """
    is_call = event.linked_correlation_id() or event.name().startswith(("cuda", "cuLaunch", "cuMem"))
    return 0 if is_call else int(event.correlation_id())


def _event(event: Any, thread: int, correlation: int) -> Event:
    start_ns = event.start_ns()
    return Event(start_ns, start_ns + event.duration_ns(), event.name(), thread, correlation)


@contextmanager
def recorded(device: torch.device, stages: Sequence[nn.Module]) -> Iterator[Recording]:
    """Record all operations while the block runs.

    The recording also has an event for the forward pass of each stage and for each wait for a collective.
    """
    recording = Recording()
    profiler = profile(use_device="cuda" if device.type == "cuda" else None)
    with silence_stderr():
        profiler.__enter__()  # type: ignore[no-untyped-call]
    try:
        with _forward_passes_named(stages), _waits_named():
            yield recording
    finally:
        with silence_stderr():
            profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    recording.fill(cast("Any", profiler.kineto_results).events())


@contextmanager
def _forward_passes_named(stages: Sequence[nn.Module]) -> Iterator[None]:
    spans: list[record_function] = []

    def begin(module: nn.Module, arguments: object) -> None:
        del module, arguments
        spans.append(record_function(FORWARD))
        spans[-1].__enter__()  # type: ignore[no-untyped-call]

    def end(module: nn.Module, arguments: object, result: object) -> None:
        del module, arguments, result
        spans.pop().__exit__(None, None, None)

    hooks = [stage.register_forward_pre_hook(begin, prepend=True) for stage in stages]
    hooks += [stage.register_forward_hook(end) for stage in stages]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _waits_named() -> Iterator[None]:
    """Record every wait from Python as an event, because the profiler only sees operations."""
    work_type: Any = Work  # its methods can be replaced, which its type does not say
    wait = work_type.wait

    def named(work: Any, *arguments: Any, **keywords: Any) -> Any:
        with record_function(WAIT + _OP_TYPES.get(work._get_op_type(), "")):
            return wait(work, *arguments, **keywords)

    work_type.wait = named
    try:
        yield
    finally:
        work_type.wait = wait
