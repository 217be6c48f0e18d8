"""Pipelines of stages that sleep instead of computing, run by real ranks, are steered around slow and dead links.

Four gloo processes whose stages sleep 20 ms per pass share a core, 12 micro-batches. Acceptance tests 5 and 6 of the
notes on arXiv 2504.19232: a fault is found within two steps, one re-plan per change of ceil(c / t_F) and none between,
the healthy schedule afterwards; a dead link costs no process. ``python -m tests.training.sleeping WORD`` runs
the stories with this word in their name.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines import (
    ControlGroup,
    Controller,
    LinkCondition,
    LinkConditions,
    Neighbourhood,
    Powers,
    Standby,
    TimedStage,
)

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the ranks do."""

    num_steps: int
    pass_s: float = 0.02
    """Of each forward, backward for inputs and backward for weights."""
    num_ranks: int = 4
    num_micro_batches: int = 12
    trace: FaultTrace | None = None
    """What befalls the links between ranks."""
    powers: Powers | None = None
    """Of the controller; None: there is no controller."""
    num_delegates: int = 6
    width: int = 64
    """Numbers of a message."""

    @property
    def plain(self) -> Schedule:
        """While nothing is wrong."""
        pass_s = max(self.pass_s, 1e-3)
        times = PassTimes.equal(self.num_ranks, pass_s, pass_s, pass_s)
        return plan(times, self.num_micro_batches).schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What came of it."""

    steps_s: tuple[float, ...] = ()
    """From the moment all ranks were ready until all knew that all were done."""
    control_s: tuple[float, ...] = ()
    """Of these what the controller took."""
    events: tuple[LinkEvent, ...] = ()
    """Found by the controllers."""
    pids: tuple[int, ...] = ()
    """Of the ranks."""


class _Sleep(torch.autograd.Function):
    """Hands on what it is given; its gradient takes its time."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None


class SleepingStage(nn.Module):
    """Takes as long for each of the three passes, however they are split."""

    def __init__(self, width: int, pass_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._pass_s = pass_s

    def forward(self, given: Tensor) -> Tensor:
        """One forward pass."""
        time.sleep(self._pass_s)
        return _slow(given, self._pass_s) * _slow(self.weight, self._pass_s)


def _slow(given: Tensor, seconds: float) -> Tensor:
    slow: Tensor = _Sleep.apply(given, seconds) if given.requires_grad else given  # type: ignore[no-untyped-call]
    return slow


def live(run: Run) -> Lived:
    """Have ranks run the steps.

    Raises:
        RuntimeError: One of them died; with its words.
    """
    torch.set_num_threads(1)
    context = get_context("fork")
    told: SimpleQueue[Any] = context.SimpleQueue()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ranks = [context.Process(target=_rank, args=(run, rank, folder, told)) for rank in range(run.num_ranks)]
        for one in ranks:
            one.start()
        try:
            found = [told.get() for _ in ranks]
        finally:
            for one in ranks:
                one.join(timeout=5.0)
                one.kill()
    died = [words for words in found if isinstance(words, str)]
    if died:
        raise RuntimeError(died[0])
    (first,) = [lived for lived in found if lived is not None]
    return Lived(**{**first, "pids": tuple(one.pid or 0 for one in ranks)})


def _rank(run: Run, rank: int, folder: str, told: SimpleQueue[Any]) -> None:
    try:
        store = FileStore(str(Path(folder) / "meeting"), run.num_ranks)
        lived = _steps(run, rank, store)
        told.put(lived if rank == 0 else None)
    except Exception:
        told.put(f"rank {rank}: {traceback.format_exc()}")
        os._exit(1)


def _steps(run: Run, rank: int, store: FileStore) -> dict[str, Any]:
    around, timeout_s = Neighbourhood.of(run.plain, rank), _TIMEOUT_S
    standby = Standby.start(around, num_delegates=run.num_delegates, timeout_s=timeout_s, store=store, pinned=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=run.num_ranks)
    stage = TimedStage(
        SleepingStage(run.width, run.pass_s),
        rank,
        run.num_ranks,
        torch.device("cpu"),
        input_args=torch.empty(1, run.width, device="meta", requires_grad=rank > 0),
        output_args=torch.empty(1, run.width, device="meta", requires_grad=True),
    )
    pipeline = standby.pipeline([stage], run.plain, loss_fn=_loss, scale_grads=False)
    group = ControlGroup(timeout_s=_TIMEOUT_S)
    controller = Controller(pipeline, group, powers=run.powers) if run.powers else None
    steps_s: list[float] = []
    control_s: list[float] = []
    events: list[LinkEvent] = []
    inputs = torch.ones(run.num_micro_batches, run.width)
    for number in range(run.num_steps):
        pipeline.conditions = _conditions(run.trace.links_at(number) if run.trace else ())
        dist.barrier()
        began_s = time.perf_counter()
        target = inputs if rank == run.num_ranks - 1 else None
        pipeline.step(*((inputs,) if rank == 0 else ()), target=target, return_outputs=False)
        ran_s = time.perf_counter()
        if controller is not None:
            events += controller.after_step(number)
        control_s.append(time.perf_counter() - ran_s)
        dist.barrier()
        steps_s.append(time.perf_counter() - began_s)
    pipeline.close()
    return {"steps_s": tuple(steps_s), "control_s": tuple(control_s), "events": tuple(events)}


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).sum()


def _conditions(links: Sequence[LinkHealth]) -> LinkConditions:
    return LinkConditions(of_pairs={link.ends: _condition(link) for link in links if link.ends is not None})


def _condition(link: LinkHealth) -> LinkCondition:
    return LinkCondition(
        delay_s=link.delay_s,
        jitter_s=link.jitter_s,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
        is_dead=link.is_dead,
    )


# ---------------------------------------------------------------- stories
ADAPTIVE = Powers(may_replan=True, may_delegate=True, num_delegates=6)

_LATEST = 2
"""Steps within which a change is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A trace, and what is expected of it."""

    name: str
    trace: str
    num_steps: int
    replans: tuple[int, ...]
    """Steps whose faults call for another plan; all others call for none."""

    @property
    def run(self) -> Run:
        """The steps that tell it."""
        trace = FaultTrace.parse(self.trace, num_steps=self.num_steps)
        return Run(num_steps=self.num_steps, trace=trace, powers=ADAPTIVE)


STORIES = (
    Story(name="a link that is slow for a while", trace="7;2_3;0.06\n30;2_3;0", num_steps=40, replans=(7, 30)),
    Story(
        name="delays within ceil(c / t_F) = 3",
        trace="7;2_3;0.050\n13;2_3;0.058\n19;2_3;0.047\n25;2_3;0.055\n31;2_3;0",
        num_steps=38,
        replans=(7, 31),
    ),
    Story(name="two links, one after the other", trace="7;0_1;0.03\n14;2_3;0.06", num_steps=22, replans=(7, 14)),
    Story(name="a link that dies", trace="7;2_3;dead", num_steps=16, replans=()),
)


def check(story: Story, lived: Lived) -> Iterator[str]:
    """What is not as it should be."""
    replans = [event.step for event in lived.events if event.kind is LinkEventKind.REPLANNED]
    for fault, found in zip(story.replans, replans, strict=False):
        if not fault <= found < fault + _LATEST:
            yield f"what happened in step {fault} was answered behind step {found}"
    if len(replans) != len(story.replans):
        yield f"{len(replans)} re-plans, and {len(story.replans)} were called for"
    if any(event.kind is LinkEventKind.RANK_SLOW for event in lived.events):
        yield "a rank was called slow"


def main() -> None:
    """Run the stories with a word in their name; end with 1, and say why, if one is not as it should be."""
    wrong = []
    for story in [one for one in STORIES if sys.argv[1] in one.name]:
        lived = live(story.run)
        wrong += [f"{story.name}: {why}; {lived}" for why in check(story, lived)]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
