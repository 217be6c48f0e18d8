"""Comparisons: a statistical test that says if one layout or environment is faster than another, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measuring import FOREIGN_CPU_SHARE, LINKS
from autotuner.core.value import Count, NonNegative, PositiveShare, Rare, value


@value
class RunGroup:
    """Repeated runs of one layout under the same conditions, all of them from one session (one sweep)."""

    rates: tuple[float, ...]
    """Tokens per second of each run, in order. MFU is proportional to this rate if all runs have the same reference
    peak. On CPU cores the peak is measured too, so the token rate varies less than MFU."""
    mfu: float
    """Mean MFU of the runs, for display."""
    at: float
    """Epoch seconds when the first run ended."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of the runs, as their trials recorded it."""

    def __post_init__(self) -> None:
        if not self.rates or min(self.rates) <= 0:
            raise InvalidInput(
                "rates", list(self.rates), "must have the tokens per second of at least one run, each above 0"
            )


@value
class SequentialTest:
    """The thresholds of a sequential test: runs of a candidate are repeated until the test decides.

    A test that has not decided after ``max_runs`` runs of the candidate stays undecided.
    """

    tolerance: NonNegative = 0.02
    """Slowdown that is accepted, as a fraction, even if the test is certain of it."""
    loss: PositiveShare = 0.05
    """Slowdown that the test must detect, as a fraction."""
    false_alarms: Annotated[PositiveShare, Rare()] = 0.01
    """Highest probability that the test calls a candidate slower although both layouts are equally fast."""
    power: Annotated[PositiveShare, Rare()] = 0.95
    """Lowest probability that the test detects a candidate that is slower by ``loss``."""
    min_runs: Count = 3
    """Fewest runs of the candidate before the test decides."""
    max_runs: int = 40
    """Most runs of the candidate. A test that has not decided by then stays undecided."""

    def __post_init__(self) -> None:
        for name, nearest in (("loss", 0.99), ("power", 0.999), ("false_alarms", 0.99)):
            if getattr(self, name) >= 1:
                raise InvalidInput(
                    name, getattr(self, name), "must be less than 1, because no test is certain", nearest
                )
        if self.tolerance >= self.loss:
            raise InvalidInput(
                "tolerance",
                self.tolerance,
                f"must be less than loss, the slowdown that the test must find ({self.loss:g})",
                float(f"{0.9 * self.loss:.6g}"),
            )
        if self.max_runs < self.min_runs:
            rule = f"must be at least min_runs ({self.min_runs})"
            raise InvalidInput("max_runs", self.max_runs, rule, self.min_runs)


class Decision(StrEnum):
    """The possible results of comparing a candidate with a reference: ``slower``, ``not_slower``, ``undecided``.

    ``slower`` means slower by more than the tolerance and the noise. ``undecided`` means that the runs scatter too much
    for their number.
    """

    SLOWER = "slower"  # by more than the tolerance, and outside the noise
    NOT_SLOWER = "not_slower"
    UNDECIDED = "undecided"  # the runs scatter too much for so few of them


@value
class Comparison:
    """The result of comparing the speed of a candidate with the speed of its reference."""

    decision: Decision
    change: float
    """Relative change of the rate from the reference to the candidate; below 0, the candidate is slower."""
    low: float
    """Lower end of the 95 % interval of the change."""
    high: float
    """Upper end of the 95 % interval of the change."""
    noise: float
    """Relative standard deviation from run to run."""
    num_reference: int
    """Number of runs of the reference that were compared."""
    num_candidate: int
    """Number of runs of the candidate that were compared."""


@value
class Challenge:
    """The layouts that a sweep measures repeatedly, in addition to its search, to compare them with each other.

    First the sweep measures the incumbent (the layout in use) until the test can compare it with the baseline (earlier
    runs). Then the sweep searches. Finally it measures the best layout that it found and the incumbent in turn, until
    the test decides which of the two is faster.
    """

    incumbent: Layout | None = None
    """Layout in use. None: no layout is in use yet, so the best layout that the sweep finds is compared with the
    baseline."""
    baseline: tuple[RunGroup, ...] = ()
    """Earlier runs of the incumbent. Empty: there are none yet, and a few runs of this sweep become its baseline."""
    test: SequentialTest = field(default_factory=SequentialTest)
    """Thresholds of the comparisons."""
    searches: bool = True
    """Try other layouts. If false, runs only measure the incumbent."""

    def __post_init__(self) -> None:
        if self.incumbent is None and not self.searches:
            raise InvalidInput(
                "searches",
                False,
                "must be true if no incumbent (layout in use) is given, because then only a search can find a "
                "layout to measure",
                True,
            )


@value
class ChallengeFindings:
    """The results of a challenge: repeated runs that show whether the best layout found beats the layout in use."""

    measured: Layout | None = None
    """Layout that was compared with the baseline: the incumbent, or the best layout found; None if neither ran."""
    runs: RunGroup | None = None
    """Runs of the layout ``measured`` in this sweep; None if it was never measured."""
    against_baseline: Comparison | None = None
    """Comparison of ``runs``, as the candidate, with the baseline; None without a baseline or without a run."""
    challenger: Layout | None = None
    """Best other layout that the sweep found, if it was compared with the incumbent."""
    challenger_runs: RunGroup | None = None
    """Runs of the challenger."""
    gain: Comparison | None = None
    """Comparison of the challenger, as the candidate, with the incumbent's runs of the same session; above 0 the
    challenger is faster."""
    is_better: bool = False
    """True if the test finds that the challenger is faster than the incumbent."""
    death: str = ""
    """Reason why the incumbent could not be measured, as a sentence; empty if it was measured."""

    def facts(self) -> dict[str, object]:
        """Return the results as fields of an announcement, which programs read: the layout, its speed, and the change.

        The change is relative to the baseline (earlier runs of the layout in use).
        """
        found: dict[str, object] = {"layout": None if self.measured is None else str(self.measured)}
        if self.runs is not None:
            found |= {"tokens_per_s": sum(self.runs.rates) / len(self.runs.rates), "mfu": self.runs.mfu}
        if self.against_baseline is not None:
            found["change"] = self.against_baseline.change
        return found


_SOFTWARE = (
    *("container_image", "torch", "driver", "cuda", "nccl", "cudnn", "triton", "transformer-engine", "flash-attn"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12"),
    *("nvidia-cublas", "megatron-core", "deepspeed", "python", "kernel", "os", "libc", "trainer", "format"),
)
"""Names of environment facts that are versions of software, the likeliest causes of a changed step time first."""

_ORDER = (
    *("device", "cpu", "cpus", "cpu_quota", "backend", LINKS),
    *("clocks_held_by", "sm_clock_mhz", "max_sm_clock_mhz", "power_limit_mw", "memory_clock_mhz", "pcie_width", "ecc"),
    *("cpu_max_mhz", "cpu_governor", "cpu_boost", "cpu_no_turbo", "niceness", FOREIGN_CPU_SHARE),
    "",  # variables of the libraries
    *_SOFTWARE,
    *("smt", "huge_pages", "nodes", "host"),
)
"""Names of environment facts, the likeliest causes of a slower step first: other hardware, fewer processors, slower
links and clocks, other processes on the machine, a variable that somebody set, versions of software, and at last other
nodes of the same kind."""

_VARIES = frozenset({"CUDA_VISIBLE_DEVICES", "reports", "launcher"})
"""Names of facts that always differ from trial to trial, such as the devices that a trial was given. They are not
compared."""

_COMES_AND_GOES = frozenset(
    {"clocks_held_by", "container_image", "cpu_quota", LINKS, "nodes", "triton", "transformer-engine", "flash-attn"}
)
"""Names of facts, other than variables, that one record may have and another may lack. If only one of two records has
any other fact, an older release did not record it."""

_STEADY_WITHIN = {"sm_clock_mhz": 0.03, "memory_clock_mhz": 0.03}
"""Relative difference that two readings of a clock may have before they count as a change. A GPU under load changes its
clock by steps of 15 MHz."""

_NEIGHBOURS_WITHIN = 0.05
"""Difference in the share of CPU time used by other processes that counts as a change. Smaller differences are
noise."""


@value
class EnvironmentChange:
    """One fact about the environment of trials (hardware, software, variables) that has changed."""

    name: str
    """Name of the environment fact, as trials record it."""
    then: str | None
    """Earlier value of the fact; None if it was not recorded."""
    now: str | None
    """Present value of the fact; None if it is not recorded."""

    @property
    def is_of_many(self) -> bool:
        """True if the fact is a list of nodes or links. A sentence then describes the change better than two lists."""
        return self.name in (LINKS, "nodes")

    def __str__(self) -> str:
        if self.name == LINKS:
            return f"links before: {self.then or 'all healthy'}; links now: {self.now or 'all healthy'}"
        match self.then, self.now:
            case None, now:
                return f"{self.name} is {now} now and was not recorded before"
            case then, None:
                return f"{self.name} was {then} before and is not recorded now"
            case str(then), str(now) if self.name == "nodes":
                return _nodes_changed(then.split(","), now.split(","))
        return f"{self.name} was {self.then} and is {self.now}"


def _nodes_changed(then: list[str], now: list[str]) -> str:
    """Return a text with the number of nodes that changed, and the names of the new nodes if they are few."""
    new = sorted(set(now) - set(then))
    named = f" ({', '.join(new)})" if 0 < len(new) <= 4 else ""
    return f"the runs used {len(then)} nodes before and use {len(now)} now, of which {len(new)} are new{named}"


def environment_changes(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[EnvironmentChange, ...]:
    """Return every environment fact that differs between two records by more than its usual variation.

    Facts that are more likely to explain a slower step come first. If one of the records is empty, the result is empty,
    because no difference is known.

    Args:
        then: Earlier record: a value for each name of a fact.
        now: Present record.
    """
    if not then or not now:
        return ()
    names = sorted(then.keys() | now.keys(), key=_place)
    pairs = ((name, then.get(name), now.get(name)) for name in names)
    return tuple(
        EnvironmentChange(name=name, then=old, now=new) for name, old, new in pairs if _differs(name, old, new)
    )


def _place(name: str) -> tuple[int, str]:
    known = name if name in _ORDER else ""
    return _ORDER.index(known), name


def _differs(name: str, then: str | None, now: str | None) -> bool:
    if then == now or name in _VARIES:
        return False
    if then is None or now is None:
        return name.isupper() or name in _COMES_AND_GOES
    if name in _STEADY_WITHIN:
        return abs(float(now) - float(then)) > _STEADY_WITHIN[name] * float(then)
    return name != FOREIGN_CPU_SHARE or abs(float(now) - float(then)) > _NEIGHBOURS_WITHIN
