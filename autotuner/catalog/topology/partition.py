"""Partition: which of some things belong together, as more and more pairs of them are known to."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.core.network import Groups

__all__ = ["Partition"]


class Partition:
    """Things that are joined pair by pair, and who is joined to whom at last."""

    def __init__(self) -> None:
        self._leaders: dict[object, object] = {}

    def join(self, one: object, other: object) -> None:
        """Both, and all that are joined to either, belong together."""
        self._leaders[self._leader(one)] = self._leader(other)

    def groups(self, accelerators: Iterable[int], *, least: int = 2) -> Groups:
        """The accelerators by who belongs together, in their order; groups of fewer than that are none."""
        found: dict[object, list[int]] = {}
        for each in accelerators:
            found.setdefault(self._leader(each), []).append(each)
        return tuple(tuple(group) for group in found.values() if len(group) >= least)

    def _leader(self, thing: object) -> object:
        while (leader := self._leaders.get(thing, thing)) != thing:
            self._leaders[thing] = thing = self._leaders.get(leader, leader)
        return thing
