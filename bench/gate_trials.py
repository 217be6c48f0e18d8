"""Real trials of equal layouts and of layouts truly 5 % apart, each pair judged as an MFU gate or a retune judges it.

``python -m bench.gate_trials record RUNS.json`` trains a small decoder again and again, forked, on one core each: in
every block first a baseline, then by turns runs of the same layout and of one that recomputes one of its layers, each
until the test has decided about it. ``python -m bench.gate_trials judge RUNS.json`` judges what was recorded, every
decision from runs that no other decision of its kind has seen. How much slower the second layout is, the file
says as a whole; a third candidate is slower by exactly 5 %: the runs of the equal layout, their rates times 0.95.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import AttentionKernel, Precision, Recompute
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.comparison import Decision, RunGroup, SequentialTest
from autotuner.domain.runs.trial import Measurement, TrialSettings, TrialSpec
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.search.comparing.compare import compare
from autotuner.search.comparing.next_runs import next_runs
from bench.gate_power import Tally
from bench.patient import Patient

_MODEL = TransformerSpec(
    name="gate",
    num_layers=16,
    hidden_size=64,
    num_heads=2,
    num_kv_heads=2,
    head_dim=32,
    ffn_size=192,
    vocab_size=256,
)
"""So many layers that recomputing one of them costs about a twentieth: a third of its passes, and the same of what
Python needs to start them, which such small layers are as much made of."""

_WORKLOAD = Workload(seq_len=64, global_batch_size=2)

_PLAIN = Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.FLASH, micro_batch_size=2)
_SLOWER = replace(_PLAIN, recompute=Recompute.FULL, recompute_every=_MODEL.num_layers)

_SETTINGS = TrialSettings(
    warmup_steps=2, max_warmup_steps=2, measured_steps=20, max_measured_steps=20, profiled_steps=0, max_repeats=0
)
"""Short and of a fixed length, so that hundreds of decisions take minutes."""

_BASELINE_RUNS = 5
_TEST = SequentialTest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one lane ran in one go: a baseline and both candidates.

    Attributes:
        lane: Which of the lanes that ran side by side.
        at: When it began, epoch seconds.
        baseline: Tokens per second of each run.
        equal: Those of the same layout afterwards.
        slower: Those of the slower one, by turns with these.
        foreign_share: Mean share of the machine's CPU time that others used, the other lanes among them.
    """

    lane: int
    at: float
    baseline: tuple[float, ...]
    equal: tuple[float, ...]
    slower: tuple[float, ...]
    foreign_share: float


def main() -> None:
    """Record, or judge what was recorded."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate_trials", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("record", "judge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=11.0, help="how long to record")
    parser.add_argument("--lanes", type=int, default=3, help="trials side by side, of one core each")
    arguments = parser.parse_args()
    if arguments.what == "record":
        record(arguments.file, arguments.minutes * 60, arguments.lanes)
    judge([Block(**block) for block in json.loads(arguments.file.read_text("utf-8"))["blocks"]])


def record(file: Path, seconds: float, num_lanes: int) -> None:
    """Fill the file with blocks; it is whole after each of them."""
    blocks: list[Block] = []
    lock, until = threading.Lock(), time.monotonic() + seconds

    def run_lane(lane: int) -> None:
        with tempfile.TemporaryDirectory() as folder, closing(LocalLauncher(Path(folder), devices=DevicePool())) as own:
            while time.monotonic() < until:
                block = _block(own, lane)
                with lock:
                    blocks.append(block)
                    file.write_text(_written(blocks, num_lanes), "utf-8")

    lanes = [threading.Thread(target=run_lane, args=(lane,)) for lane in range(num_lanes)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()


def judge(blocks: Sequence[Block]) -> None:
    """Print what was decided of each kind of candidate, and what the runs say of the machine."""
    _say(f"{len(blocks)} blocks of {sum(map(_num_runs, blocks))} trials, {_hours(blocks)}; {_machine(blocks)}")
    lost, error = _true_loss(blocks)
    _say(f"the slower layout lost {100 * lost:.2f} ± {100 * error:.2f} % (± one standard error)\n")
    _say("| candidate | decisions | slower | not slower | undecided | runs of the candidate, mean and most |")
    _say("| --- | --- | --- | --- | --- | --- |")
    for name, rates in _CANDIDATES.items():
        tally = Tally.of([_ended(block, rates(block)) for block in blocks])
        _say(f"| {name} | {tally.num_decisions} | {tally.in_words()} |")


def _block(launcher: LocalLauncher, lane: int) -> Block:
    at, foreign = time.time(), []

    def rate(layout: Layout) -> float:
        measured = _run(launcher, layout)
        foreign.append(measured.foreign_cpu_share)
        return round(measured.tokens_per_s, 1)

    baseline = tuple(rate(_PLAIN) for _ in range(_BASELINE_RUNS))
    candidates: dict[Layout, list[float]] = {_PLAIN: [], _SLOWER: []}
    while wanting := [layout for layout, rates in candidates.items() if _wants_more(baseline, layout, rates)]:
        for layout in wanting:
            candidates[layout].append(rate(layout))
    return Block(
        lane=lane,
        at=at,
        baseline=baseline,
        equal=tuple(candidates[_PLAIN]),
        slower=tuple(candidates[_SLOWER]),
        foreign_share=statistics.fmean(foreign),
    )


def _wants_more(baseline: Sequence[float], layout: Layout, rates: Sequence[float]) -> bool:
    """Whether a candidate is undecided; of the equal one also whether it would be, were it slower by just the loss."""
    judged = [rates, _lost(rates)] if layout == _PLAIN else [rates]
    return not rates or any(next_runs([_group(baseline)], [_group(candidate)], _TEST) > 0 for candidate in judged)


def _lost(rates: Sequence[float]) -> list[float]:
    return [(1 - _TEST.loss) * rate for rate in rates]


def _run(launcher: LocalLauncher, layout: Layout) -> Measurement:
    spec = TrialSpec(
        trial_id="gate",
        model=_MODEL,
        workload=_WORKLOAD,
        layout=layout,
        device="cpu",
        settings=_SETTINGS,
        reference_flop_per_s=1e11,
    )
    outcome = launcher.run(spec, Patient())
    assert isinstance(outcome, Measurement), outcome
    return outcome


def _ended(block: Block, candidate: Sequence[float]) -> tuple[Decision, int]:
    """What is decided of a candidate, and after how many of its runs."""
    for num_runs in range(_TEST.min_runs, len(candidate) + 1):
        decision = compare([_group(block.baseline)], [_group(candidate[:num_runs])], _TEST).decision
        if decision is not Decision.UNDECIDED:
            return decision, num_runs
    return Decision.UNDECIDED, len(candidate)


_CANDIDATES: dict[str, Callable[[Block], Sequence[float]]] = {
    "the same layout again": lambda block: block.equal,
    "the layout that recomputes a layer": lambda block: block.slower,
    "the same layout, its rates times 0.95": lambda block: _lost(block.equal),
}


def _true_loss(blocks: Sequence[Block]) -> tuple[float, float]:
    """By the first runs of both candidates of each block, which ran by turns; with its standard error.

    Those alone that run whatever is decided: where runs stop when they have shown enough, the last of them are no
    fair sample.
    """
    equal, slower = _means([block.equal for block in blocks]), _means([block.slower for block in blocks])
    losses = [before - after for before, after in zip(equal, slower, strict=True)]
    error = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else math.inf
    return -math.expm1(-statistics.fmean(losses)), error


def _means(groups: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(np.log(rates[: _TEST.min_runs])) for rates in groups]


def _machine(blocks: Sequence[Block]) -> str:
    """How far runs of a block scatter, and how far blocks of a lane lie apart beyond that."""
    within = statistics.fmean(np.var(np.log(block.baseline), ddof=1) for block in blocks)
    before, after = (_means(groups) for groups in ([b.baseline for b in blocks], [b.equal for b in blocks]))
    apart = np.array(after) - np.array(before)
    expected = 2 * within / _TEST.min_runs
    between = max(statistics.fmean(np.square(apart)) - expected, 0.0) / 2
    foreign = statistics.fmean(block.foreign_share for block in blocks)
    scatter, apart_by = (f"{100 * math.sqrt(variance):.2f} %" for variance in (within, between))
    said = f"runs scatter by {scatter}, a baseline and what follows it lie apart by {apart_by} each beyond that"
    return f"{said}; others used {100 * foreign:.0f} % of the machine"


def _num_runs(block: Block) -> int:
    return len(block.baseline) + len(block.equal) + len(block.slower)


def _hours(blocks: Sequence[Block]) -> str:
    begun = [block.at for block in blocks]
    return f"{(max(begun) - min(begun)) / 60:.0f} minutes"


def _group(rates: Sequence[float]) -> RunGroup:
    return RunGroup(rates=tuple(rates), mfu=0.0, at=0.0)


def _written(blocks: Sequence[Block], num_lanes: int) -> str:
    """JSON with a line per block."""
    lines = ",\n".join(json.dumps(asdict(block)) for block in blocks)
    return f'{{"num_lanes": {num_lanes}, "blocks": [\n{lines}\n]}}\n'


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
