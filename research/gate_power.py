"""False alarms and power of the sequential test for performance gates and retunings, in simulations of noise.

``python -m research.gate_power`` draws pairs of equal layouts, and pairs whose second layout is slower by just the loss
that must be detected. It judges each pair after every run with the product's own code, and prints how the pairs ended.
It takes minutes.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.comparison import Decision, RunGroup, SequentialTest
from autotuner.search.sequential_test import decide, next_baseline_runs, weigh

Tail = Literal["normal", "heavy", "one-sided", "disturbed 5 %", "disturbed 10 %", "correlated", "drift by turns"]

_TEST = SequentialTest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The noise and the number of runs of a simulated comparison between a candidate layout and a reference layout."""

    noise: float
    """Relative standard deviation between runs."""
    tail: Tail = "normal"
    """Distribution of the runs. Heavy: Student's t with 3 degrees of freedom. One-sided: exponential, towards slow.
    Disturbed:
    a share of the runs is 10 to 30 % slower. Correlated: each run shares half of its deviation with the run before. By
    turns:
    the machine loses a fifth of its speed while both layouts run."""
    baseline: tuple[int, ...] = (10,)
    """Number of runs of the reference in each of its sessions; empty: one session with as many runs as the product asks
    for."""
    between: float = 0.003
    """Relative standard deviation between sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The decisions of the sequential test on simulated candidates, and the numbers of runs until these decisions."""

    slower: int
    """Number of pairs that were judged slower."""
    not_slower: int
    """Number of pairs that were judged not slower."""
    undecided: int
    """Number of pairs that stayed undecided."""
    runs: tuple[int, ...]
    """Number of runs of the candidate in each pair."""

    @classmethod
    def of(cls, ends: Iterable[tuple[Decision, int]]) -> Tally:
        """Return the tally of simulated pairs, each given as its decision and the number of runs until the decision."""
        decisions, runs = zip(*ends, strict=True)
        return cls(
            slower=decisions.count(Decision.SLOWER),
            not_slower=decisions.count(Decision.NOT_SLOWER),
            undecided=decisions.count(Decision.UNDECIDED),
            runs=runs,
        )

    @property
    def num_decisions(self) -> int:
        """Return the number of simulated pairs. A pair that stayed undecided counts, too."""
        return len(self.runs)

    def in_words(self) -> str:
        """Return cells of a Markdown row: the share of each decision, and the mean and the largest number of runs."""
        ends = (self.slower, self.not_slower, self.undecided)
        shares = " | ".join(f"{100 * end / self.num_decisions:.1f} %" for end in ends)
        return f"{shares} | {statistics.fmean(self.runs):.1f}, {max(self.runs)}"


_NIGHTS = (5, 5, 5)

_SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "By noise, with the baseline that the product measures in its first sitting": tuple(
        Scenario(noise=noise, baseline=()) for noise in (0.002, 0.005, 0.01, 0.015, 0.02, 0.03)
    ),
    "By noise, one sitting of 10 runs as baseline": tuple(
        Scenario(noise=noise) for noise in (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1)
    ),
    "By noise, three sittings of 5": tuple(
        Scenario(noise=noise, baseline=_NIGHTS) for noise in (0.002, 0.01, 0.02, 0.03, 0.05)
    ),
    "By size of the baseline": tuple(
        Scenario(noise=noise, baseline=baseline)
        for noise in (0.01, 0.02)
        for baseline in ((3,), (5,), (20,), (5,) * 7, (10,) * 7)
    ),
    "By how runs scatter": tuple(
        Scenario(noise=noise, tail=tail, baseline=baseline)
        for tail in ("heavy", "one-sided", "disturbed 5 %", "disturbed 10 %", "correlated")
        for noise, baseline in ((0.005, (10,)), (0.015, (10,)), (0.015, _NIGHTS))
    ),
    "By how far sittings lie apart": tuple(
        Scenario(noise=0.005, between=between, baseline=(5,) * num_sittings)
        for between in (0.0, 0.005, 0.01, 0.02, 0.04)
        for num_sittings in (1, 3, 14)
    ),
    "Runs by turns, while the machine loses a fifth of its speed": tuple(
        Scenario(noise=noise, tail="drift by turns", between=0.0, baseline=(_TEST.max_runs,))
        for noise in (0.002, 0.01, 0.02, 0.03, 0.05)
    ),
}


def main() -> None:
    """Simulate the sequential test in all scenarios, and print one Markdown table for each kind of scenario.

    The tables show how often the test calls equal layouts slower, and how often it finds a slower layout.
    """
    parser = argparse.ArgumentParser(prog="python -m research.gate_power", description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of each kind in each scenario")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="print the tables whose title holds this")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        for title in filter(lambda title: arguments.only in title, _SCENARIOS):
            _print(f"\n### {title}\n\n{_HEAD}")
            for line in pool.map(partial(_line, num_pairs=arguments.pairs), _SCENARIOS[title]):
                _print(line)


_HEAD = """\
| noise | scatter | baseline | between sittings | equal: slower | not slower | undecided | runs, mean and most \
| 5 % lost: slower | not slower | undecided | runs, mean and most |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def _line(scenario: Scenario, num_pairs: int) -> str:
    sizes = scenario.baseline
    baseline = f"{len(sizes)} × {sizes[0]}" if len(sizes) > 1 else f"{sizes[0]}" if sizes else "3 to 10"
    if scenario.tail == "drift by turns":
        baseline = "by turns"
    noise, between = (f"{100 * share:g} %" for share in (scenario.noise, scenario.between))
    equal, lost = (simulated(scenario, loss, num_pairs).in_words() for loss in (0.0, _TEST.loss))
    return f"| {noise} | {scenario.tail} | {baseline} | {between} | {equal} | {lost} |"


def simulated(scenario: Scenario, loss: float, num_pairs: int) -> Tally:
    """Simulate ``num_pairs`` comparisons of a reference with a candidate, and return how the sequential test ended.

    Args:
        scenario: The noise and the number of runs of the reference.
        loss: Fraction by which the rate of the candidate is lower, 0..1; 0: the two layouts are equal.
        num_pairs: Number of comparisons to simulate.
    """
    rng = np.random.default_rng([round(1e4 * scenario.noise), round(1e4 * loss), *scenario.baseline])
    return Tally.of(_ended(scenario, loss, rng) for _ in range(num_pairs))


def _ended(scenario: Scenario, loss: float, rng: np.random.Generator) -> tuple[Decision, int]:
    """Return the decision on one pair, and the number of runs that it took."""
    groups = [_group(_sitting(scenario, num_runs, rng)) for num_runs in scenario.baseline] or [_first(scenario, rng)]
    candidate = _sitting(scenario, _TEST.max_runs, rng) + math.log1p(-loss)
    same_session = scenario.tail == "drift by turns"
    for num_runs in range(_TEST.min_runs, _TEST.max_runs + 1):
        belief = weigh(groups, [_group(candidate[:num_runs])], same_session=same_session)
        if (decision := decide(belief, _TEST)) is not Decision.UNDECIDED:
            return decision, num_runs
    return Decision.UNDECIDED, _TEST.max_runs


def _first(scenario: Scenario, rng: np.random.Generator) -> RunGroup:
    """Return the first session of a baseline, which continues until the product asks for no more runs."""
    logs, num_runs = _sitting(scenario, _TEST.max_runs, rng), _TEST.min_runs
    while next_baseline_runs(_group(logs[:num_runs]), _TEST):
        num_runs += 1
    return _group(logs[:num_runs])


def _sitting(scenario: Scenario, num_runs: int, rng: np.random.Generator) -> Floats:
    """Return the logarithms of the rates of one layout in one session."""
    return scenario.between * rng.standard_normal() + _scattered(scenario, num_runs, rng)


def _scattered(scenario: Scenario, num_runs: int, rng: np.random.Generator) -> Floats:
    normal: Floats = scenario.noise * rng.standard_normal(num_runs)
    match scenario.tail:
        case "normal":
            return normal
        case "heavy":
            heavy: Floats = scenario.noise * rng.standard_t(3, num_runs) / math.sqrt(3)  # whose variance is 3
            return heavy
        case "one-sided":
            return scenario.noise * (1 - rng.exponential(1.0, num_runs))
        case "disturbed 5 %":
            return normal + _disturbances(0.05, num_runs, rng)
        case "disturbed 10 %":
            return normal + _disturbances(0.1, num_runs, rng)
        case "correlated":
            return _correlated(normal)
        case "drift by turns":
            return normal + math.log(0.8) * np.linspace(0, 1, num_runs)


def _disturbances(share: float, num_runs: int, rng: np.random.Generator) -> Floats:
    slowed: Floats = np.log(rng.uniform(0.7, 0.9, num_runs))
    return np.where(rng.random(num_runs) < share, slowed, 0.0)


def _correlated(normal: Floats, share: float = 0.5) -> Floats:
    """Return an autoregressive process of order one with the same variance as its input."""
    logs = normal.copy()
    for index in range(1, len(logs)):
        logs[index] = share * logs[index - 1] + math.sqrt(1 - share**2) * normal[index]
    return logs


def _group(logs: Sequence[float] | Floats) -> RunGroup:
    return RunGroup(rates=tuple(np.exp(logs)), mfu=0.0, at=0.0)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
