"""Links one by one: what passes between two ends while neither talks to anybody else.

Ends are nodes, for each of which its first rank speaks, or the ranks of a single node. Who lies lower in a pair asks
and keeps the time; the other answers until it is told that nothing follows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from autotuner.core.link import LinkEnds, LinkPoint, link_rounds
from autotuner.trials.rank import RankInfo, barrier

_PASSES = 3
"""Number of times that each pair is measured, at separate times. The best counts: a passing disturbance only adds time,
and a degraded link is slow every time."""

_OPENING = 10
"""Budgets of small messages that long ones have: over a late link TCP opens its window from one to the next."""

_MOST_OF_WORDS = 50
"""A long message takes at least this part of what it takes with two words, which a late link's delay may dominate."""

_NORMAL = 1.4826
"""Median absolute deviations in a standard deviation of normal noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSizes:
    """The number and size of the messages that are measured between two ends of a link."""

    fewest: int = 7
    """Small messages there and back, however long they take."""
    most: int = 200
    """Small messages there and back."""
    budget_s: float = 0.3
    """Seconds after which small messages end; long ones end after ten times as many."""
    long_bytes: int = 2**22
    """Size of a long message."""
    most_long: int = 8
    """Long messages each way."""

    @classmethod
    def of(cls, device: torch.device, *, quick: bool) -> PairSizes:
        """Return the number and size of messages that suffice to measure a link of this kind of device.

        Args:
            device: The device of this rank.
            quick: Send fewer and smaller messages, to try the benchmark itself.
        """
        if quick:
            return cls(most=20, budget_s=0.1, long_bytes=2**20)
        return cls() if device.type == "cpu" else cls(long_bytes=2**26)


def link_points(sizes: PairSizes, device: torch.device, rank_info: RankInfo) -> tuple[LinkPoint, ...]:
    """Measure the link between every pair of ends that ``link_rounds`` lists; empty if there is only one end.

    Call it on all ranks at once. Every rank returns the points of all ranks.
    """
    ends = _Ends(rank_info)
    mine = [point for _ in range(_PASSES) for point in _one_pass(sizes, device, ends)]
    told: list[list[LinkPoint] | None] = [None] * rank_info.world_size
    dist.all_gather_object(told, mine)
    return tuple(_best(point for points in told for point in points or ()))


class _Ends:
    """The rank that speaks for each end.

    Attributes:
        num: How many ends there are.
        own: This rank's; None where another of its node speaks.
    """

    def __init__(self, rank_info: RankInfo) -> None:
        per_end = 1 if rank_info.world_size == rank_info.local_world_size else rank_info.local_world_size
        self.num = rank_info.world_size // per_end
        self.own = rank_info.rank // per_end if rank_info.rank % per_end == 0 else None
        self._per_end = per_end

    def rank(self, end: int) -> int:
        """Return the rank that speaks for an end."""
        return end * self._per_end


def _one_pass(sizes: PairSizes, device: torch.device, ends: _Ends) -> Iterator[LinkPoint]:
    """Yield each round of pairs, and what this rank measured as the lower end of one."""
    for pairs in link_rounds(ends.num):
        barrier(device)  # nobody of another pair still sends
        for pair in pairs:
            if ends.own == pair[0]:
                yield _Pair(sizes, device, ends.rank(pair[1])).asked(pair)
            elif ends.own == pair[1]:
                _Pair(sizes, device, ends.rank(pair[0])).answer()


class _Pair:
    """The messages between this rank and the other end."""

    def __init__(self, sizes: PairSizes, device: torch.device, peer: int) -> None:
        self._sizes = sizes
        self._peer = peer
        self._device = device
        self._word = torch.ones(1, device=device)
        self._long = torch.zeros(sizes.long_bytes // 4, device=device)

    def asked(self, ends: LinkEnds) -> LinkPoint:
        """Measure the link, as its lower end."""
        round_trips_s = self._round_trips_s()
        one_way_s = [seconds / 2 for seconds in round_trips_s]
        delay_s = median(one_way_s)
        forth_s, back_s = zip(*self._long_messages_s(), strict=True)
        return LinkPoint(
            ends=ends,
            delay_s=delay_s,
            jitter_s=_NORMAL * median(abs(seconds - delay_s) for seconds in one_way_s),
            forth_bytes_per_s=self._rate(forth_s, min(round_trips_s)),
            back_bytes_per_s=self._rate(back_s, min(round_trips_s)),
        )

    def answer(self) -> None:
        """Do as the lower end says."""
        while self._hears():
            self._says(more=True)
        self._says(more=False)
        is_more = True
        while is_more:
            self._receive(self._long)
            self._says(more=True)
            is_more = self._hears()
            self._send(self._long)

    def _round_trips_s(self) -> list[float]:
        """Return those of small messages; the very first, which connects both ends, counts for nothing."""
        self._says(more=True)
        self._hears()
        found, begun_s = list[float](), time.perf_counter()
        is_more = True
        while is_more:
            is_more = len(found) + 1 < self._sizes.most and (
                len(found) + 1 < self._sizes.fewest or self._seconds_since(begun_s) < self._sizes.budget_s
            )
            start_s = self._seconds_since(begun_s)
            self._says(more=is_more)
            self._hears()
            found.append(self._seconds_since(begun_s) - start_s)
        return found

    def _long_messages_s(self) -> Iterator[tuple[float, float]]:
        """Yield the times of long messages there and back, each answered by a word, while there is time."""
        begun_s = time.perf_counter()
        is_more, num_done = True, 0
        while is_more:
            start_s = self._seconds_since(begun_s)
            self._send(self._long)
            self._hears()
            middle_s = self._seconds_since(begun_s)
            num_done += 1
            is_more = num_done < self._sizes.most_long and middle_s < _OPENING * self._sizes.budget_s
            self._says(more=is_more)
            self._receive(self._long)
            yield middle_s - start_s, self._seconds_since(begun_s) - middle_s

    def _rate(self, seconds: Sequence[float], round_trip_s: float) -> float:
        """Return that of the quickest, without the time of two words; where that is nearly all, noise is no rate."""
        quickest_s = min(seconds)
        return self._sizes.long_bytes / max(quickest_s - round_trip_s, quickest_s / _MOST_OF_WORDS)

    def _seconds_since(self, start_s: float) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter() - start_s

    def _says(self, *, more: bool) -> None:
        self._word.fill_(float(more))
        self._send(self._word)

    def _hears(self) -> bool:
        self._receive(self._word)
        return bool(self._word.item())

    def _send(self, message: torch.Tensor) -> None:
        dist.send(message, self._peer)

    def _receive(self, message: torch.Tensor) -> None:
        dist.recv(message, self._peer)


def _best(points: Iterable[LinkPoint]) -> Iterator[LinkPoint]:
    """Yield for every pair its least delay with the jitter beside it, and its highest rates."""
    by_ends: dict[LinkEnds, list[LinkPoint]] = {}
    for point in points:
        by_ends.setdefault(point.ends, []).append(point)
    for ends in sorted(by_ends):
        least = min(by_ends[ends], key=lambda point: point.delay_s)
        yield LinkPoint(
            ends=ends,
            delay_s=least.delay_s,
            jitter_s=least.jitter_s,
            forth_bytes_per_s=max(point.forth_bytes_per_s for point in by_ends[ends]),
            back_bytes_per_s=max(point.back_bytes_per_s for point in by_ends[ends]),
        )
