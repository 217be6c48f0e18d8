"""Measures each link by itself: the messages between two ends while no other rank communicates.

The ends are nodes, each represented by its first rank, or the ranks of a single node. In each pair, the lower end sends
first and takes the times; the other end answers until it is told that no message follows.
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
"""Long messages may take this many times the time budget of small ones, since TCP on a slow link opens its window only
from one message to the next."""

_MOST_OF_WORDS = 50
"""A long message counts as taking at least its time divided by this number. Two small messages are subtracted from it,
and on a link with a long delay they may be nearly all of the time."""

_NORMAL = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of normal noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSizes:
    """The number and size of the messages that two ranks send each other to measure the link between them."""

    fewest: int = 7
    """Minimum number of small messages there and back, however long they take."""
    most: int = 200
    """Maximum number of small messages there and back."""
    budget_s: float = 0.3
    """Seconds after which no more small messages are sent; long ones may take ten times as long."""
    long_bytes: int = 2**22
    """Size of a long message."""
    most_long: int = 8
    """Maximum number of long messages in each direction."""

    @classmethod
    def of(cls, device: torch.device, *, quick: bool) -> PairSizes:
        """Return the number and size of messages that are enough to measure a link between devices of this kind.

        Args:
            device: The device of this rank.
            quick: Send fewer and smaller messages, to test the benchmark itself.
        """
        if quick:
            return cls(most=20, budget_s=0.1, long_bytes=2**20)
        return cls() if device.type == "cpu" else cls(long_bytes=2**26)


def link_points(sizes: PairSizes, device: torch.device, rank_info: RankInfo) -> tuple[LinkPoint, ...]:
    """Measure the delay and bandwidth of single links, while no other rank communicates.

    In a job on several nodes, links between nodes are measured. In a job on one node, links between its devices are
    measured. Call this function on all ranks at once; every rank returns the results of all links. The result is empty
    if there is only one node with one device.

    Args:
        sizes: Number and size of the messages.
        device: The device of this rank.
        rank_info: The place of this rank in the job.
    """
    ends = _Ends(rank_info)
    mine = [point for _ in range(_PASSES) for point in _one_pass(sizes, device, ends)]
    gathered: list[list[LinkPoint] | None] = [None] * rank_info.world_size
    dist.all_gather_object(gathered, mine)
    return tuple(_best(point for points in gathered for point in points or ()))


class _Ends:
    """The rank that represents each end.

    Attributes:
        num: Number of ends.
        own: The end that this rank represents; None if another rank of its node represents it.
    """

    def __init__(self, rank_info: RankInfo) -> None:
        per_end = 1 if rank_info.world_size == rank_info.local_world_size else rank_info.local_world_size
        self.num = rank_info.world_size // per_end
        self.own = rank_info.rank // per_end if rank_info.rank % per_end == 0 else None
        self._per_end = per_end

    def rank(self, end: int) -> int:
        """Return the rank that represents an end."""
        return end * self._per_end


def _one_pass(sizes: PairSizes, device: torch.device, ends: _Ends) -> Iterator[LinkPoint]:
    """Go through the rounds of pairs, and yield each link that this rank measured as the lower end of a pair."""
    for pairs in link_rounds(ends.num):
        barrier(device)  # no other pair is still sending
        for pair in pairs:
            if ends.own == pair[0]:
                yield _Pair(sizes, device, ends.rank(pair[1])).asked(pair)
            elif ends.own == pair[1]:
                _Pair(sizes, device, ends.rank(pair[0])).answer()


class _Pair:
    """The exchange of messages between this rank and the other end."""

    def __init__(self, sizes: PairSizes, device: torch.device, peer: int) -> None:
        self._sizes = sizes
        self._peer = peer
        self._device = device
        self._word = torch.ones(1, device=device)
        self._long = torch.zeros(sizes.long_bytes // 4, device=device)

    def asked(self, ends: LinkEnds) -> LinkPoint:
        """Measure the link, as the lower end of the pair."""
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
        """Answer the messages of the lower end."""
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
        """Return the round-trip times of small messages; the first message, which connects both ends, is left out."""
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
        """Yield the times of a long message to the other end and of one back, until the number or the time is used up.

        The receiver of a long message answers with a small one.
        """
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
        """Return the bandwidth of the fastest long message, without the time of two small messages.

        If these take nearly all of the time, a minimum is used, so that noise is not taken for a rate.
        """
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
    """Yield, for every pair, its shortest delay with the jitter of that measurement, and its highest bandwidths."""
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
