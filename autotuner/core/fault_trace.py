"""FaultTrace: links that are slow from one step to another, as arXiv 2504.19232 writes them."""

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
"""Bits per second per letter of a rate, as ``tc`` writes them."""


@value
class Fault:
    """A state of one link that begins at a step and lasts until the next fault of that link."""

    step: CountFromZero
    """Step at which the state begins, counted from 0 at the first step under the trace."""
    health: LinkHealth
    """State of the link. A nominal state ends the fault."""

    def __post_init__(self) -> None:
        if self.health.ends is None:
            raise InvalidInput("health", str(self.health), "a fault must name both ends of its link", "0_1")

    def __str__(self) -> str:
        """Return a line that ``FaultTrace.parse`` reads: ``7;2_3;0.06``."""
        return f"{self.step};{self.health};{_state(self.health)}"


@value
class Stretch:
    """Consecutive steps in which no link changes; ``links`` are the degraded ones."""

    first_step: int
    num_steps: int
    links: tuple[LinkHealth, ...]


@value
class FaultTrace:
    """Faults in order of their steps, over so many steps.

    A line, or a part between two ``|``, per fault, or several of a step: ``iteration; link[, link]; state``, where a
    state is seconds of one-way delay (``0.06``; ``0`` heals), a rate (``200mbit``), or ``dead``. ``inf`` is another
    word for dead (the traces of PipeMorph, arXiv 2504.19232, are written so).
    """

    faults: tuple[Fault, ...]
    num_steps: Count

    def __post_init__(self) -> None:
        steps = [fault.step for fault in self.faults]
        if steps != sorted(steps):
            raise InvalidInput("faults", steps, "must be in the order of their steps", str(sorted(steps)))
        if steps and steps[-1] >= self.num_steps:
            raise InvalidInput("num_steps", self.num_steps, "must lie behind the last fault", steps[-1] + 1)

    @classmethod
    def parse(cls, text: str, *, num_steps: int | None = None) -> Self:
        """Return the trace of a text. By default it lasts as long after the last fault as it took to get there.

        Raises:
            InvalidInput: A line is no fault; with the line.

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
        """The links that have a fault at some step."""
        return tuple(sorted({fault.health.ends for fault in self.faults if fault.health.ends}))

    def links_at(self, step: int) -> tuple[LinkHealth, ...]:
        """Return the links that are degraded in a step."""
        known = latest(fault.health for fault in self.faults if fault.step <= step)
        return tuple(health for health in known if not health.is_healthy)

    def stretches(self) -> tuple[Stretch, ...]:
        """Return the steps of the trace in stretches, cut where a link changes."""
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
        raise InvalidInput("fault_trace", line, "must be iteration;link[,link];state", "7;2_3;0.06")
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
        rule = "the state of a link must be seconds of delay, a rate such as 200mbit, or dead"
        raise InvalidInput("fault_trace", line, rule, f"{line.rsplit(';', 1)[0][:40]};0.06") from error


def _state(health: LinkHealth) -> str:
    if health.is_dead:
        return "dead"
    if health.bandwidth_bytes_per_s is not None:
        return _rate(8 * health.bandwidth_bytes_per_s)
    return f"{health.delay_s:.12g}"


def _rate(bits: float) -> str:
    """Return a rate in the largest unit that needs no decimals, or in bits per second."""
    unit = next((letter for letter in ("g", "m", "k") if bits % _BITS[letter] == 0), "")
    return f"{bits / _BITS[unit]:.12g}{unit}bit"


def at_worst(job: Job, trace: FaultTrace | None) -> Job:
    """Return the job that a layout must be legal for: it has every fault of the trace at its worst.

    A layout may need no link that dies, and its stages are placed around slow links.

    A link that is dead in some step is dead here; of other states the one with the largest delay stands.

    Raises:
        InvalidInput: The cluster lacks one of the links.
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
    """Return if the cluster has every link that the trace names.

    Raises:
        InvalidInput: With the first line whose link it lacks.
    """
    num_ends = cluster.num_link_ends
    for fault in trace.faults:
        low, high = fault.health.ends or (0, 0)
        if high >= num_ends:
            what = "nodes" if cluster.num_nodes > 1 else "accelerators"
            rule = f"{cluster.name} has no link {low}_{high}: its links join {num_ends} {what}, numbered from 0"
            nearest = f"{max(0, num_ends - 2)}_{num_ends - 1}" if num_ends > 1 else None
            raise InvalidInput("fault_trace", str(fault), rule, nearest)
