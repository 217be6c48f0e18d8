"""FaultTrace: a schedule of link states by training step, in the format of arXiv 2504.19232."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.link import LinkEnds, LinkHealth, latest
from autotuner.core.value import Count, CountFromZero, value

_LINE = re.compile(r"(?P<step>\d{1,9});(?P<links>\d{1,6}_\d{1,6}(?:,\d{1,6}_\d{1,6})*);(?P<what>[\w.+-]{1,24})")

_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[kmg]?)bit")

_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
"""Bits per second of each unit letter of a rate, as the Linux tool ``tc`` writes them."""


@value
class Fault:
    """A change in the state of one link (delay, bandwidth or failure), which lasts until the link's next fault."""

    step: CountFromZero
    """Step at which the link enters this state, counted from 0 at the first step under the trace."""
    health: LinkHealth
    """State of the link from this step on. A nominal state ends the fault."""

    def __post_init__(self) -> None:
        if self.health.ends is None:
            raise InvalidInput(
                "health",
                str(self.health),
                "must name the two ends of one link, such as 0_1, because a fault is at one link",
            )

    def __str__(self) -> str:
        """Return a line that ``FaultTrace.parse`` reads: ``7;2_3;0.06``."""
        return f"{self.step};{self.health};{_state(self.health)}"


@value
class Stretch:
    """Consecutive steps of a fault trace between two changes of links; ``links`` are degraded in all of these steps."""

    first_step: int
    num_steps: int
    links: tuple[LinkHealth, ...]


@value
class FaultTrace:
    """A list of link faults in the order of their steps, over a given number of steps.

    As a text it has one line per fault (or a part between two ``|``): ``iteration; link[, link]; state``. One line may
    name several links that have the same fault. A state is a one-way delay in seconds (``0.06``; ``0`` ends the fault),
    a rate (``200mbit``), or ``dead``. ``inf`` also means dead, as in the traces of PipeMorph (arXiv 2504.19232).
    """

    faults: tuple[Fault, ...]
    num_steps: Count

    def __post_init__(self) -> None:
        steps = [fault.step for fault in self.faults]
        if steps != sorted(steps):
            raise InvalidInput("faults", steps, "must be in the order of their steps", str(sorted(steps)))
        if steps and steps[-1] >= self.num_steps:
            raise InvalidInput("num_steps", self.num_steps, "must be above the step of the last fault", steps[-1] + 1)

    @classmethod
    def parse(cls, text: str, *, num_steps: int | None = None) -> Self:
        """Return the fault trace that a text describes.

        Args:
            text: One line per fault: ``iteration; link[, link]; state``.
            num_steps: Number of steps of the trace; None: twice the step number of the last fault, and at least 1.

        Raises:
            InvalidInput: A line does not describe a fault. The error quotes the line.

        Example:
            >>> trace = FaultTrace.parse("7; 2_3; 0.06 | 14; 2_3; 0")
            >>> trace.num_steps, [len(trace.links_at(step)) for step in (0, 7, 14)]
            (28, [0, 1, 0])
        """
        lines = [line for line in map(str.strip, re.split(r"[\n|]", text)) if line and not line.startswith("#")]
        faults = [fault for line in lines for fault in _read(line)]
        last = max((fault.step for fault in faults), default=0)
        return cls(faults=tuple(faults), num_steps=num_steps or max(1, 2 * last))

    @property
    def ends(self) -> tuple[LinkEnds, ...]:
        """The links that have a fault at some step, each as the numbers of the nodes or accelerators at its ends."""
        return tuple(sorted({fault.health.ends for fault in self.faults if fault.health.ends}))

    def links_at(self, step: int) -> tuple[LinkHealth, ...]:
        """Return the states of the links that are degraded in this step."""
        known = latest(fault.health for fault in self.faults if fault.step <= step)
        return tuple(health for health in known if not health.is_healthy)

    def stretches(self) -> tuple[Stretch, ...]:
        """Return the steps of the trace as stretches: consecutive steps between two changes of links."""
        cuts = sorted({0, *(fault.step for fault in self.faults)})
        ends: Sequence[int] = (*cuts[1:], self.num_steps)
        return tuple(
            Stretch(first_step=first, num_steps=end - first, links=self.links_at(first))
            for first, end in zip(cuts, ends, strict=True)
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def _read(line: str) -> Iterator[Fault]:
    match = _LINE.fullmatch(line.replace(" ", ""))
    if match is None:
        raise InvalidInput(
            "fault_trace",
            line,
            "must be a line of the form iteration;link[,link];state, for example 7;2_3;0.06, which gives the "
            "link between 2 and 3 a delay of 0.06 s from iteration 7 on",
        )
    for link in match["links"].split(","):
        low, high = sorted(map(int, link.split("_")))
        yield Fault(step=int(match["step"]), health=_health((low, high), match["what"], line))


def _health(ends: LinkEnds, what: str, line: str) -> LinkHealth:
    if what.lower() in ("dead", "inf"):
        return LinkHealth(ends=ends, is_dead=True)
    if rate := _RATE.fullmatch(what.lower()):
        return LinkHealth(ends=ends, bandwidth_bytes_per_s=float(rate["number"]) * _BITS[rate["unit"]] / 8)
    try:
        return LinkHealth(ends=ends, delay_s=float(what))
    except ValueError as error:
        rule = "must end with the state of a link: seconds of delay, a rate such as 200mbit, or dead"
        raise InvalidInput("fault_trace", line, rule, f"{line.rsplit(';', 1)[0][:40]};0.06") from error


def _state(health: LinkHealth) -> str:
    if health.is_dead:
        return "dead"
    if health.bandwidth_bytes_per_s is not None:
        return _rate(8 * health.bandwidth_bytes_per_s)
    return f"{health.delay_s:.12g}"


def _rate(bits: float) -> str:
    """Return the text of a rate, in the largest unit that needs no decimals, or in bits per second."""
    unit = next((letter for letter in ("g", "m", "k") if bits % _BITS[letter] == 0), "")
    return f"{bits / _BITS[unit]:.12g}{unit}bit"


def at_worst(job: Job, trace: FaultTrace | None) -> Job:
    """Return the job with every link in the worst state that it has in a fault trace. Use it to check layouts.

    A legal layout for this job uses no link that is dead in some step, and its stages are placed around slow links. A
    dead link is the worst state; otherwise the state with the largest delay is the worst.

    Args:
        job: The job.
        trace: The fault trace; None: the job is returned unchanged.

    Raises:
        InvalidInput: The cluster lacks a link that the trace names.
    """
    if trace is None:
        return job
    require_links(trace, job.cluster)
    worst: dict[LinkEnds | None, LinkHealth] = {}
    for fault in trace.faults:
        ends, health = fault.health.ends, fault.health
        if not health.is_healthy and (ends not in worst or health.severity > worst[ends].severity):
            worst[ends] = health
    if not worst:
        return job
    return replace(job, cluster=job.cluster.with_link_health(worst.values()))


def require_links(trace: FaultTrace, cluster: Cluster) -> None:
    """Check that the cluster has every link that the fault trace names.

    Raises:
        InvalidInput: A link is missing. The error quotes the first line of the trace that names it.
    """
    num_ends = cluster.num_link_ends
    for fault in trace.faults:
        low, high = fault.health.ends or (0, 0)
        if high >= num_ends:
            what = "nodes" if cluster.num_nodes > 1 else "accelerators"
            rule = (
                f"must name a link of {cluster.name}, which has no link {low}_{high}: its links join "
                f"{num_ends} {what}, numbered from 0"
            )
            nearest = f"{max(0, num_ends - 2)}_{num_ends - 1}" if num_ends > 1 else None
            raise InvalidInput("fault_trace", str(fault), rule, nearest)
