"""Windows: what leaves the fullest of equal parts of a job whose borders do not lie between groups.

Ranks are numbered in blocks of ``num_ranks * stride``, each of which holds ``stride`` groups; a part is a window on
these numbers. What leaves it depends on how much of a block it cuts off at either end, so that each window is a
few divisions, and the fullest is found among all that differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers


@dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """Parts of ``size`` ranks of a job, and groups of ranks, one row per layout.

    Attributes:
        num_ranks: Ranks of one group.
        stride: How far apart their numbers are.
        size: Ranks of a part.
        world_size: Ranks of the job; the last part may have fewer.
    """

    num_ranks: Integers
    stride: Integers
    size: int
    world_size: int

    def rings_out(self) -> Floats:
        """Rings that leave the fullest part: those of groups that have ranks on both sides of a border."""
        return self._fullest(_rings_out)

    def sends_out(self) -> Floats:
        """Ranks of the fullest part whose next one in the group lies behind its end."""
        return self._fullest(_sends_out)

    def shares_out(self) -> Floats:
        """Ranks' worth of bytes that leave the fullest part where each rank sends equal shares to its whole group."""
        return self._fullest(_shares_out)

    def _fullest(self, count: Callable[[Integers, Integers, Integers, Integers], Floats]) -> Floats:
        both = np.stack([self.num_ranks, self.stride])
        few, which = np.unique(both, axis=1, return_inverse=True)
        starts = np.arange(0, self.world_size, self.size)[None, :]
        stops = np.minimum(starts + self.size, self.world_size)
        found: Floats = count(few[0][:, None], few[1][:, None], starts, stops).max(axis=1)
        return found[which.reshape(-1)]


def _rings_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    block = num_ranks * stride
    before, behind, is_within = _cut_off(block, starts, stops)
    first, length = starts % block, stops - starts
    whole = np.clip(np.minimum(stride, first + length - block + stride) - first, 0, None)  # groups that lie inside
    within = np.minimum(stride, length) - whole
    ends = _cut(num_ranks, stride, before) + _cut(num_ranks, stride, behind)
    return np.where(is_within, within, ends).astype(np.float64)


def _sends_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    cut = _cut(num_ranks, stride, stops % (num_ranks * stride))
    return np.asarray(np.minimum(cut, stops - starts), dtype=np.float64)


def _shares_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    before, behind, is_within = _cut_off(num_ranks * stride, starts, stops)
    ends = _sent_from(num_ranks, stride, before) + _sent_from(num_ranks, stride, behind)
    pairs = np.where(is_within, _sent_from(num_ranks, stride, stops - starts), ends)
    shares: Floats = pairs / num_ranks
    return shares


def _cut_off(block: Integers, starts: Integers, stops: Integers) -> tuple[Integers, Integers, Booleans]:
    """Ranks of a window before the first border between blocks and behind the last; whether it meets none."""
    return -starts % block, stops % block, (starts // block == (stops - 1) // block) & (stops % block > 0)


def _cut(num_ranks: Integers, stride: Integers, length: Integers) -> Integers:
    """Groups of a block with ranks both among its first ``length`` ranks and behind them; as many from its end."""
    groups: Integers = np.minimum(np.minimum(stride, length), num_ranks * stride - length)
    return groups


def _sent_from(num_ranks: Integers, stride: Integers, length: Integers) -> Integers:
    """Pairs of ranks of one group of which one lies inside a run of so many ranks of a block, and one outside."""
    each, more = np.divmod(length, stride)
    pairs: Integers = more * (each + 1) * (num_ranks - each - 1) + (stride - more) * each * (num_ranks - each)
    return pairs
