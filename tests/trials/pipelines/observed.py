"""Steps of a pipeline as its ranks would tell them, without processes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trials.pipelines.detector import Observation

PASS_S = 0.02


@dataclass
class Steps:
    """Invents what ranks measure: passes of 20 ms, messages that take half a millisecond, and what is done to them."""

    seed: int = 0
    num_stages: int = 4
    noise_s: float = 0.0005
    delays_s: Sequence[float] = (0.0, 0.0, 0.0)
    """By link."""
    is_one_way: bool = False
    """Gradients are not delayed."""
    slower_s: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
    """By stage: added to each pass."""
    dead: frozenset[int] = frozenset()
    """Links that are."""

    def __post_init__(self) -> None:
        self._source = random.Random(self.seed)

    def next(self) -> list[Observation]:
        """A step of all ranks."""
        return [self._rank(stage) for stage in range(self.num_stages)]

    def _rank(self, stage: int) -> Observation:
        pass_s, is_last = PASS_S + self.slower_s[stage] + self._late_s(), stage == self.num_stages - 1
        return Observation(
            stage=stage,
            forward_s=PASS_S,
            input_s=PASS_S,
            weight_s=PASS_S,
            micro_batch_s=3 * pass_s,
            from_previous_s=self._way_s(stage - 1, is_forth=True) if stage else None,
            from_next_s=None if is_last else self._way_s(stage, is_forth=False),
            lost_previous=stage - 1 in self.dead,
            lost_next=stage in self.dead,
        )

    def _way_s(self, link: int, *, is_forth: bool) -> float:
        """A rank that is slow itself looks late at what comes."""
        delay_s = self.delays_s[link] if is_forth or not self.is_one_way else 0.0
        return 0.0005 + delay_s + self._late_s() + max(self.slower_s[link], self.slower_s[link + 1])

    def _late_s(self) -> float:
        return abs(self._source.gauss(0.0, self.noise_s))
