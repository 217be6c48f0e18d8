"""Pipelines over a slow link, run for real beside what the simulator says: ``python -m bench.slow_links_live``.

Four gloo processes whose stages sleep 20 ms per pass, 12 micro-batches, a delay on the last link. Then the trial's own
decoder on four cores, the same order of transports and schedules. Last what the runtime costs where nothing is wrong.
Bounds (acceptance test 3 of the notes on arXiv 2504.19232): every step within 5 % of the simulator; with 60 ms the
adapted pipeline at most 0.80 of delegates alone and 0.60 of blocking sends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name
from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble

from autotuner.catalog.hardware import load_cluster
from autotuner.core import codec
from autotuner.core.choices import AttentionKernel, P2PTransport, PipelineSchedule, Precision
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.schedules.named import one_f_one_b, zb_h2, zb_interleaved
from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import BLOCKING, PassTimes, Transport, delegated, simulate
from autotuner.training.pipelines.channel import Meeting, Neighbourhood, pair_channels
from autotuner.training.pipelines.delegated import DelegatedTransport, Delegates
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.pipeline import PlannedPipeline, PlannedStage
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions
from bench.forked_ranks import on_ranks
from trials.job.attempt import attempt
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter

_RANKS, _MICRO_BATCHES, _WIDTH = 4, 12, 64
_PASS_S = 0.02
_DELEGATES = 6
_CPU = torch.device("cpu")
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A schedule and who sends, by name; no schedule: torch's own class of zero bubbles."""

    name: str
    schedule: Schedule | None
    is_delegated: bool = False

    @property
    def transport(self) -> Transport:
        """As the simulator knows it."""
        return delegated(_DELEGATES) if self.is_delegated else BLOCKING


def ways(delay_s: float) -> tuple[Way, ...]:
    """What is compared at a delay of the last link."""
    times = pass_times(delay_s)
    return (
        Way(name="zero bubble, delegated", schedule=zb_h2(_RANKS, _MICRO_BATCHES), is_delegated=True),
        Way(name="adaptive, delegated", schedule=plan(times, _MICRO_BATCHES).schedule, is_delegated=True),
        Way(name="zero bubble, inline", schedule=zb_h2(_RANKS, _MICRO_BATCHES)),
        Way(name="1f1b, inline", schedule=one_f_one_b(_RANKS, _MICRO_BATCHES)),
    )


def pass_times(delay_s: float, pass_s: float = _PASS_S) -> PassTimes:
    """Equal stages, the last link late."""
    return replace(PassTimes.equal(_RANKS, pass_s, pass_s, pass_s), send_s=(0.0,) * (_RANKS - 2) + (delay_s,))


def _rest(seconds: float) -> None:
    """Sleep, and spin through the last moment: a machine wakes a sleeper a little late."""
    until_s = time.monotonic() + seconds
    time.sleep(seconds - 3e-4)
    while time.monotonic() < until_s:
        pass


class _SlowBackward(torch.autograd.Function):
    """Takes its time on the way back."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor) -> Tensor:
        del ctx, weight  # an input that needs a gradient even on the first stage
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        del ctx
        _rest(_PASS_S)
        return gradients[0], None


class SleepingStage(nn.Module):
    """Sleeps forward, and for the gradients of its inputs; ``weight_gradients`` sleeps for those of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, given: Tensor) -> Tensor:
        """One forward pass."""
        _rest(_PASS_S)
        passed: Tensor = _SlowBackward.apply(given, self.weight)  # type: ignore[no-untyped-call]  # torch's own
        return passed


def weight_gradients() -> Callable[..., None]:
    """What is left of a backward pass when its inputs have their gradients."""
    return lambda: _rest(_PASS_S)


class ComputingStage(nn.Module):
    """A few products, so that a step takes long enough to tell what runs them costs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))

    def forward(self, given: Tensor) -> Tensor:
        """One forward pass."""
        passed: Tensor = self.layers(given)
        return passed


def run(way: Way, delay_s: float, num_steps: int, *, sleeps: bool = True) -> float:
    """Median seconds of a step, without the first, from the first rank's begin to the last one's end, on one clock."""
    found = on_ranks(_RANKS, lambda rank, folder: _steps(way, delay_s, num_steps, rank, folder, sleeps=sleeps))
    steps = list(zip(*found, strict=True))[1:]
    return float(median(max(end for _, end in ranks) - min(begin for begin, _ in ranks) for ranks in steps))


def _steps(
    way: Way, delay_s: float, num_steps: int, rank: int, folder: Path, *, sleeps: bool
) -> list[tuple[float, float]]:
    torch.set_num_threads(1)
    store = FileStore(str(folder / "store"), _RANKS)
    meeting = Meeting.beside(store, {})
    around = Neighbourhood.of(way.schedule or zb_interleaved(_RANKS, 1, _MICRO_BATCHES), rank)
    delegates = Delegates.start(meeting, around, _DELEGATES, timeout_s=_TIMEOUT_S) if way.is_delegated else None
    dist.init_process_group("gloo", store=store, rank=rank, world_size=_RANKS)
    pipeline = _pipeline(way, meeting, around, delegates, sleeps=sleeps)
    if isinstance(pipeline, PlannedPipeline):
        slow = LinkCondition(delay_s=delay_s)
        pipeline.conditions = LinkConditions(of_pairs={(_RANKS - 2, _RANKS - 1): slow})
    batch = torch.ones(_MICRO_BATCHES * (1 if sleeps else 64), _WIDTH if sleeps else 256)
    took_s = []
    for _ in range(num_steps):
        dist.barrier()
        began_s = time.monotonic()
        target = batch if rank == _RANKS - 1 else None
        pipeline.step(*((batch,) if rank == 0 else ()), target=target, return_outputs=False)
        took_s.append((began_s, time.monotonic()))
    if delegates is not None:
        delegates.end()
    return took_s


def _pipeline(
    way: Way, meeting: Meeting, around: Neighbourhood, delegates: Delegates | None, *, sleeps: bool
) -> PlannedPipeline | ScheduleInterleavedZeroBubble:
    rank, rows, width = around.rank, 1 if sleeps else 64, _WIDTH if sleeps else 256
    module = SleepingStage() if sleeps else ComputingStage()
    keywords: dict[str, Any] = {
        "input_args": torch.empty(rows, width, device="meta", requires_grad=rank > 0),
        "output_args": torch.empty(rows, width, device="meta", requires_grad=True),
        "dw_builder": (lambda: weight_gradients()) if sleeps else None,  # noqa: PLW0108  # torch calls it per pass
    }
    if way.schedule is None:
        stage = PipelineStage(module, rank, _RANKS, _CPU, **keywords)
        return ScheduleInterleavedZeroBubble([stage], _MICRO_BATCHES, loss_fn=_loss, scale_grads=False)
    planned = PlannedStage(module, rank, _RANKS, _CPU, **keywords)
    if delegates is not None:
        transport: Any = DelegatedTransport(rank, delegates, _MICRO_BATCHES)
    else:
        channels = pair_channels(meeting, around, _CPU, timeout_s=_TIMEOUT_S)
        transport = InlineTransport(rank, channels, _MICRO_BATCHES)
    return PlannedPipeline([planned], way.schedule, transport=transport, loss_fn=_loss, scale_grads=False)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def sleeping(num_steps: int) -> bool:
    """Print measured beside predicted for stages that sleep; whether all bounds hold."""
    _say("stages that sleep 20 ms per pass, 4 ranks, 12 micro-batches, delay on the last link")
    _say(f"{'delay':>6}  {'':24}{'measured':>10}{'predicted':>11}{'ratio':>8}")
    holds = True
    at_60: dict[str, float] = {}
    for delay_s in (0.0, 0.03, 0.06):
        for way in ways(delay_s):
            assert way.schedule is not None
            predicted_s = simulate(way.schedule, pass_times(delay_s), way.transport).makespan_s
            measured_s = run(way, delay_s, num_steps)
            holds &= abs(measured_s / predicted_s - 1) <= 0.05
            at_60[way.name] = measured_s
            ratio = measured_s / predicted_s
            figures = f"{1e3 * measured_s:8.0f} ms{1e3 * predicted_s:8.0f} ms{ratio:8.3f}"
            _say(f"{1e3 * delay_s:4.0f} ms  {way.name:24}{figures}")
    adapted_s = at_60["adaptive, delegated"]
    for other, bound in (("zero bubble, delegated", 0.80), ("zero bubble, inline", 0.60)):
        holds &= adapted_s <= bound * at_60[other]
        _say(f"at 60 ms adapted / {other}: {adapted_s / at_60[other]:.3f} (at most {bound:.2f})")
    return holds


_MODEL = TransformerSpec(
    name="live",
    num_layers=2 * _RANKS,
    hidden_size=384,
    num_heads=6,
    num_kv_heads=6,
    head_dim=64,
    ffn_size=1024,
    vocab_size=1024,
)

_PLANNED: dict[str, Any] = {
    "pipeline_parallel_degree": _RANKS,
    "micro_batch_size": 1,
    "precision": Precision.FP32,
    "attention_kernel": AttentionKernel.MATH,
}

_DELEGATED: dict[str, Any] = {"p2p_transport": P2PTransport.DELEGATED, "num_delegates": 3}

_LAYOUTS = {
    "zero bubble, delegated": Layout(**_PLANNED, **_DELEGATED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
    "adaptive, delegated": Layout(**_PLANNED, **_DELEGATED, pipeline_schedule=PipelineSchedule.ADAPTIVE),
    "zero bubble, inline": Layout(**_PLANNED, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
    "1f1b, inline": Layout(**_PLANNED, pipeline_schedule=PipelineSchedule.ONE_F_ONE_B),
}


def computing(delay_s: float) -> bool:
    """Print the trial's own decoder on four cores; whether the order is that of the sleeping stages."""
    _say(f"the trial's decoder, 2 layers per stage, 4 ranks, 12 micro-batches, {1e3 * delay_s:.0f} ms on the last link")
    found_s = {}
    for name, layout in _LAYOUTS.items():
        found_s[name] = _trial_s(layout, delay_s)
        _say(f"{name:24}{1e3 * found_s[name]:8.0f} ms")
    adapted_s, fixed_s, blocking_s, _ = (
        found_s[name]
        for name in ("adaptive, delegated", "zero bubble, delegated", "zero bubble, inline", "1f1b, inline")
    )
    _say(f"adapted / delegated {adapted_s / fixed_s:.3f}, adapted / blocking {adapted_s / blocking_s:.3f}")
    return adapted_s < fixed_s < blocking_s


def _trial_s(layout: Layout, delay_s: float) -> float:
    """Median step of a trial on a cluster whose last link is late."""
    health = (LinkHealth(ends=(_RANKS - 2, _RANKS - 1), delay_s=delay_s),) if delay_s else ()
    settings = TrialSettings(
        warmup_steps=2, max_warmup_steps=2, measured_steps=3, max_measured_steps=3, profiled_steps=0, timeout_s=120.0
    )
    spec = TrialSpec(
        trial_id="live",
        model=_MODEL,
        workload=Workload(seq_len=256, global_batch_size=_MICRO_BATCHES),
        layout=layout,
        device="cpu",
        settings=settings,
        reference_flop_per_s=1e11,
        cluster=replace(load_cluster(f"cpu:1x{_RANKS}"), link_health=health),
    )

    def of_rank(rank: int, folder: Path) -> list[float]:
        info = RankInfo(rank=rank, world_size=_RANKS, local_rank=rank, local_world_size=_RANKS)
        reports = folder / "reports.jsonl"
        store = FileStore(str(folder / "store"), _RANKS)
        code = attempt(codec.dumps(spec), Reporter(reports, rank=rank), info, store=store)
        assert code == 0, reports.read_text()
        return list(_step_times(reports)) if rank == 0 else []

    return float(median(on_ranks(_RANKS, of_rank)[0]))


def _step_times(reports: Path) -> Iterator[float]:
    for line in reports.read_text().splitlines():
        found = json.loads(line)
        if found["type"] == "step" and not found["is_warmup"]:
            yield found["step_time_s"]


def overhead(num_steps: int, repeats: int) -> None:
    """Print what planned order and delegates cost where nothing is wrong, beside torch's own zero bubbles."""
    own = Way(name="torch's own", schedule=None)
    schedule = zb_interleaved(_RANKS, 1, _MICRO_BATCHES)
    others = (
        Way(name="the same order, planned", schedule=schedule),
        Way(name="the same order, delegated", schedule=schedule, is_delegated=True),
    )
    for sleeps, what in ((True, "stages that sleep"), (False, "stages that compute")):
        taken: dict[str, list[float]] = {}
        for _ in range(repeats):
            for way in (own, *others):
                taken.setdefault(way.name, []).append(run(way, 0.0, num_steps, sleeps=sleeps))
        base_s = median(taken[own.name])
        for way in others:
            share = median(taken[way.name]) / base_s - 1
            _say(f"{what}: {way.name} {100 * share:+.1f} % of torch's own {1e3 * base_s:.1f} ms")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named, or all; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.slow_links_live", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["sleeping", "computing", "overhead"])
    parser.add_argument("--steps", type=int, default=6, help="of each run; the first does not count")
    chosen = parser.parse_args(arguments)
    holds = True
    if "sleeping" in chosen.parts:
        holds &= sleeping(chosen.steps)
    if "computing" in chosen.parts:
        holds &= computing(0.06)
    if "overhead" in chosen.parts:
        overhead(chosen.steps, repeats=3)
    _say("every bound holds" if holds else "a bound does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
