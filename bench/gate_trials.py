"""Real trials of equal layouts and of layouts truly 5 % apart, each pair judged as an MFU gate or a retune judges it.

``python -m bench.gate_trials record RUNS.json`` trains a small decoder again and again, forked, on one core each; with
``--trials paced`` it runs a registered trainer whose steps sleep for a stated time. In every block there is first a
baseline, then by turns runs of the same layout and of a slower one, each until the test has decided about it.
``python -m bench.gate_trials judge RUNS.json`` judges what was recorded, every decision from runs that no other
decision of its kind has seen. How much slower the second layout is, the file says as a whole; a third candidate is
slower by exactly 5 %: the runs of the equal layout, their rates times 0.95.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from autotuner.core.comparison import Decision, RunGroup, SequentialTest
from autotuner.core.layout import Layout
from autotuner.launch.local import LocalLauncher
from autotuner.search.sequential_test import compare, next_baseline_runs, next_runs
from bench.gate_power import Tally
from bench.gate_sources import PLAIN, SLOWER, SOURCES, Source

_TEST = SequentialTest()

_CALM = 0.02
"""Scatter up to which the power asked for is promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one lane ran in one go: a baseline and both candidates."""

    lane: int
    """Which of the lanes that ran side by side."""
    at: float
    """When it began, epoch seconds."""
    baseline: tuple[float, ...]
    """Tokens per second of each run."""
    equal: tuple[float, ...]
    """Those of the same layout afterwards."""
    slower: tuple[float, ...]
    """Those of the slower one, by turns with these."""
    foreign_share: float
    """Mean share of the machine's CPU time that others used, the other lanes among them."""


def main() -> None:
    """Record, or judge what was recorded."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate_trials", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("record", "judge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=11.0, help="how long to record")
    parser.add_argument("--lanes", type=int, default=3, help="trials side by side, of one core each")
    parser.add_argument("--trials", choices=tuple(SOURCES), default="decoder", help="what is recorded")
    arguments = parser.parse_args()
    if arguments.what == "record":
        record(arguments.file, arguments.minutes * 60, arguments.lanes, arguments.trials)
    recorded = json.loads(arguments.file.read_text("utf-8"))
    judge([Block(**block) for block in recorded["blocks"]], SOURCES[recorded["trials"]].slower)


def record(file: Path, seconds: float, num_lanes: int, trials: str) -> None:
    """Fill the file with blocks; it is whole after each of them."""
    source = SOURCES[trials]
    blocks: list[Block] = []
    lock, until = threading.Lock(), time.monotonic() + seconds

    def run_lane(lane: int) -> None:
        with tempfile.TemporaryDirectory() as folder, closing(source.launcher(Path(folder))) as own:
            while time.monotonic() < until:
                block = _block(source, own, lane)
                with lock:
                    blocks.append(block)
                    file.write_text(_written(blocks, num_lanes, trials), "utf-8")

    lanes = [threading.Thread(target=run_lane, args=(lane,)) for lane in range(num_lanes)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()


def judge(blocks: Sequence[Block], slower: str) -> None:
    """Print what was decided of each kind of candidate, and what the runs say of the machine."""
    _say(f"{len(blocks)} blocks of {sum(map(_num_runs, blocks))} trials, {_hours(blocks)}; {_machine(blocks)}")
    lost, error = _true_loss(blocks)
    by_medians = f"by medians {100 * _median_loss(blocks):.2f} %"
    _say(f"the slower layout lost {100 * lost:.2f} ± {100 * error:.2f} % (± one standard error), {by_medians}")
    _say_decisions(blocks, slower)
    if calm := [block for block in blocks if np.std(np.log(block.baseline), ddof=1) <= _CALM]:
        _say(f"\n{len(calm)} of these, whose baseline, run before any candidate, scatters by at most {_CALM:.0%}:")
        _say_decisions(calm, slower)


def _say_decisions(blocks: Sequence[Block], slower: str) -> None:
    _say("\n| candidate | decisions | slower | not slower | undecided | runs, mean and most | slower, 95 % interval |")
    _say("| --- | --- | --- | --- | --- | --- | --- |")
    for name, rates in _CANDIDATES.items():
        tally = Tally.of([_ended(block, rates(block)) for block in blocks])
        _say(f"| {name or slower} | {tally.num_decisions} | {tally.in_words()} | {_interval(tally)} |")


def _interval(tally: Tally) -> str:
    """Of the share that was called slower, by Clopper and Pearson."""
    ends = binomtest(tally.slower, tally.num_decisions).proportion_ci(0.95, "exact")
    return f"{100 * ends.low:.1f} to {100 * ends.high:.1f} %"


def _block(source: Source, launcher: LocalLauncher, lane: int) -> Block:
    at, foreign = time.time(), []

    def rate(layout: Layout) -> float:
        measured = source.run(launcher, layout)
        foreign.append(measured.foreign_cpu_share)
        return round(measured.tokens_per_s, 1)

    baseline: list[float] = []
    while next_baseline_runs(_group(baseline) if baseline else None, _TEST):
        baseline.append(rate(PLAIN))
    candidates: dict[Layout, list[float]] = {PLAIN: [], SLOWER: []}
    while wanting := [layout for layout, rates in candidates.items() if _wants_more(baseline, layout, rates)]:
        for layout in wanting:
            candidates[layout].append(rate(layout))
    return Block(
        lane=lane,
        at=round(at, 1),
        baseline=tuple(baseline),
        equal=tuple(candidates[PLAIN]),
        slower=tuple(candidates[SLOWER]),
        foreign_share=round(statistics.fmean(foreign), 3),
    )


def _wants_more(baseline: Sequence[float], layout: Layout, rates: Sequence[float]) -> bool:
    """Whether a candidate is undecided; of the equal one also whether it would be, were it slower by just the loss."""
    judged = [rates, _lost(rates)] if layout == PLAIN else [rates]
    return not rates or any(next_runs([_group(baseline)], [_group(candidate)], _TEST) > 0 for candidate in judged)


def _lost(rates: Sequence[float]) -> list[float]:
    return [(1 - _TEST.loss) * rate for rate in rates]


def _ended(block: Block, candidate: Sequence[float]) -> tuple[Decision, int]:
    """What is decided of a candidate, and after how many of its runs."""
    for num_runs in range(_TEST.min_runs, len(candidate) + 1):
        decision = compare([_group(block.baseline)], [_group(candidate[:num_runs])], _TEST).decision
        if decision is not Decision.UNDECIDED:
            return decision, num_runs
    return Decision.UNDECIDED, len(candidate)


_CANDIDATES: dict[str, Callable[[Block], Sequence[float]]] = {
    "the same layout again": lambda block: block.equal,
    "": lambda block: block.slower,
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


def _median_loss(blocks: Sequence[Block]) -> float:
    """By the same runs, whatever disturbed a few of them."""
    equal, slower = (
        statistics.median(rate for rates in groups for rate in rates[: _TEST.min_runs])
        for groups in ([block.equal for block in blocks], [block.slower for block in blocks])
    )
    return 1 - slower / equal


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


def _written(blocks: Sequence[Block], num_lanes: int, trials: str) -> str:
    """JSON with a line per block."""
    lines = ",\n".join(json.dumps(asdict(block)) for block in blocks)
    return f'{{"trials": "{trials}", "num_lanes": {num_lanes}, "blocks": [\n{lines}\n]}}\n'


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
