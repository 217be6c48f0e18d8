"""LinkConditions: what is done to messages between pipeline ranks, so that a fast link behaves like a slow one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Positive, Seconds, value


@value
class LinkCondition:
    """What befalls messages between two pipeline ranks, in both directions.

    Attributes:
        delay_s: One-way, for every message.
        jitter_s: Standard deviation of the delay from message to message.
        bandwidth_bytes_per_s: One direction; None: as fast as the real link.
        is_dead: Inline sends fail; delegates still get through, over the hosts' own network.
    """

    delay_s: Seconds = 0.0
    jitter_s: Seconds = 0.0
    bandwidth_bytes_per_s: Positive | None = None
    is_dead: bool = False

    def hold_s(self, num_bytes: int, chance: random.Random) -> float:
        """Seconds that a message of so many bytes is held back."""
        delay_s = max(0.0, chance.gauss(self.delay_s, self.jitter_s)) if self.jitter_s else self.delay_s
        return delay_s + (num_bytes / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0)


HEALTHY = LinkCondition()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConditions:
    """The links of one pipeline that are not as they really are.

    Attributes:
        of_pairs: By both pipeline ranks, the lower first; links that are not named are healthy.
    """

    of_pairs: Mapping[tuple[int, int], LinkCondition] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for pair in self.of_pairs:
            if not 0 <= pair[0] < pair[1]:
                rule = "a link joins two different pipeline ranks, the lower first"
                raise InvalidInput("of_pairs", list(pair), rule, str(sorted(pair)))

    def between(self, one: int, other: int) -> LinkCondition:
        """The condition of the link between two pipeline ranks."""
        return self.of_pairs.get((min(one, other), max(one, other)), HEALTHY)
