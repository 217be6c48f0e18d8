"""Pipeline schedules as data: what each pipeline rank runs, in which order.

A schedule prints and parses, one line per rank, an action as stage, kind and micro-batch: ``0F0 0F1 0B0 0B1``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Self

from autotuner.core.errors import InvalidInput


class Kind(StrEnum):
    """What an action computes; the letters are those of torch.distributed.pipelining."""

    FORWARD = "F"
    BACKWARD = "B"  # gradients of inputs and of weights in one go
    INPUT = "I"  # gradients of inputs only: the stage before waits for them
    WEIGHT = "W"  # gradients of weights only: nobody waits for them


class Action(NamedTuple):
    """One pass of one micro-batch through one stage."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The action that prints as ``text``.

        Raises:
            InvalidInput: It is not a stage, one of F, B, I, W, and a micro-batch.
        """
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", text)
        if match is None:
            raise InvalidInput("action", text, "must be a stage, one of F, B, I or W, and a micro-batch, such as 0F0")
        return cls(int(match[1]), Kind(match[2]), int(match[3]))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The actions of every pipeline rank, in the order in which it runs them.

    Valid from construction: every stage lives on one rank, and there every micro-batch goes forward once and then back
    once, whole (B) or in two parts (I, later W). Whether the ranks wait for one another in a circle shows when it runs
    (``simulate``).
    """

    ranks: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        placed = [sorted({action.stage for action in actions}) for actions in self.ranks]
        if not all(placed) or sorted(chain.from_iterable(placed)) != list(range(max(1, self.num_stages))):
            rule = "each rank must hold stages, each stage one rank, and their numbers go from 0 without a gap"
            raise InvalidInput("schedule", placed, rule)
        for actions in self.ranks:
            _check_rank(actions, self.num_micro_batches)

    @cached_property
    def num_stages(self) -> int:
        """Stages over all ranks."""
        return 1 + max((action.stage for actions in self.ranks for action in actions), default=-1)

    @cached_property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step."""
        return 1 + max((action.micro_batch for actions in self.ranks for action in actions), default=-1)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """The rank on which each stage lives."""
        return {action.stage: rank for rank, actions in enumerate(self.ranks) for action in actions}

    def peak_in_flight(self, released_by: Kind = Kind.WEIGHT) -> tuple[int, ...]:
        """Most passes through one stage whose activations each rank keeps at once.

        Args:
            released_by: ``WEIGHT`` counts until everything is released; ``INPUT`` counts only what waits for gradients
                of its output, not what is kept for deferred weight gradients.
        """
        return tuple(_peak(actions, (Kind.BACKWARD, released_by)) for actions in self.ranks)

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, actions)) for actions in self.ranks)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The schedule that prints as ``text``: a line per rank, actions separated by blanks.

        Raises:
            InvalidInput: A word is no action, or the actions are no schedule.
        """
        return cls(ranks=tuple(tuple(map(Action.parse, line.split())) for line in text.strip().splitlines()))


def _check_rank(actions: tuple[Action, ...], num_micro_batches: int) -> None:
    """Every micro-batch goes through every stage of the rank, in the right order."""
    ran: dict[tuple[int, int], str] = {}
    for stage, kind, micro_batch in actions:
        key = stage, micro_batch
        ran[key] = ran.get(key, "") + kind
    for stage in {action.stage for action in actions}:
        for micro_batch in range(num_micro_batches):
            kinds = ran.get((stage, micro_batch), "")
            if kinds in ("FIW", "FB"):
                continue
            twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
            if twice:
                raise InvalidInput("schedule", f"{stage}{twice}{micro_batch}", "every action runs once")
            rule = f"stage {stage} must run F, then B or I and W, for every micro-batch"
            raise InvalidInput("schedule", f"micro-batch {micro_batch}: {kinds or 'nothing'}", rule)


def _peak(actions: tuple[Action, ...], releasing: tuple[Kind, ...]) -> int:
    held = peak = 0
    for action in actions:
        held += (action.kind is Kind.FORWARD) - (action.kind in releasing)
        peak = max(peak, held)
    return peak


def gpipe(num_ranks: int, num_micro_batches: int) -> Schedule:
    """All forwards, then all backwards (arXiv 1811.06965)."""
    check_sizes(num_ranks, num_micro_batches)
    kinds = (Kind.FORWARD, Kind.BACKWARD)
    micro_batches = range(num_micro_batches)
    return Schedule(
        ranks=tuple(tuple(Action(rank, kind, i) for kind in kinds for i in micro_batches) for rank in range(num_ranks))
    )


def one_f_one_b(num_ranks: int, num_micro_batches: int) -> Schedule:
    """``num_ranks - rank`` forwards, then a backward and a forward in turn (arXiv 2104.04473, section 2.2)."""
    return interleaved_1f1b(num_ranks, 1, num_micro_batches)


def interleaved_1f1b(num_ranks: int, stages_per_rank: int, num_micro_batches: int) -> Schedule:
    """1F1B in which a rank holds every ``num_ranks``-th stage, as Megatron-LM runs it (arXiv 2104.04473, section 2.3).

    Micro-batches go in rounds of ``num_ranks`` through one stage of a rank, then through its next. Rank r runs
    ``2 (p - r - 1) + (v - 1) p`` forwards ahead; with one stage per rank it is plain 1F1B, which runs ``p - r - 1``.

    Raises:
        InvalidInput: With several stages per rank, micro-batches that are not whole rounds.
    """
    check_sizes(num_ranks, num_micro_batches, stages_per_rank)
    p, v, m = num_ranks, stages_per_rank, num_micro_batches
    if v > 1 and m % p:
        raise InvalidInput("num_micro_batches", m, f"must be a multiple of the {p} pipeline ranks", max(p, m // p * p))
    ranks = []
    for rank in range(p):
        forwards, backwards = rounds(rank, p, v, m, Kind.FORWARD), rounds(rank, p, v, m, Kind.BACKWARD)
        ahead = p - rank - 1 if v == 1 else 2 * (p - rank - 1) + (v - 1) * p
        ranks.append(tuple(_alternate(forwards, backwards, min(ahead, m * v))))
    return Schedule(ranks=tuple(ranks))


def rounds(rank: int, p: int, v: int, m: int, kind: Kind) -> list[Action]:
    """Passes of one kind in rounds of p micro-batches: a round visits the rank's stages, backwards from the last."""
    size = p if v > 1 else m
    chunks = range(v) if kind is Kind.FORWARD else range(v - 1, -1, -1)
    starts = range(0, m, size)
    return [Action(rank + chunk * p, kind, i) for s in starts for chunk in chunks for i in range(s, s + size)]


def _alternate(forwards: list[Action], backwards: list[Action], ahead: int) -> Iterator[Action]:
    yield from forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - ahead :]


def zb_h1(num_ranks: int, num_micro_batches: int) -> Schedule:
    """1F1B whose rank r defers weight gradients by r micro-batches, so that all ranks keep as many as the first.

    Source: arXiv 2401.10241, section 2.3 and figure 2.
    """
    return _deferring(num_ranks, num_micro_batches, 1)


def zb_h2(num_ranks: int, num_micro_batches: int) -> Schedule:
    """``2 (p - r) - 1`` forwards ahead and weight gradients deferred by 2 r micro-batches: ``2 p - 1`` kept per rank.

    Source: arXiv 2401.10241, section 2.3 and figure 3.
    """
    return _deferring(num_ranks, num_micro_batches, 2)


def _deferring(num_ranks: int, num_micro_batches: int, step: int) -> Schedule:
    """Rank r runs ``step (p - 1 - r) + 1`` forwards, then I, F and the W of ``step r`` micro-batches before."""
    check_sizes(num_ranks, num_micro_batches)
    m = num_micro_batches
    ranks: list[tuple[Action, ...]] = []
    for rank in range(num_ranks):
        ahead, lag = step * (num_ranks - 1 - rank) + 1, step * rank
        actions = [Action(rank, Kind.FORWARD, i) for i in range(min(ahead, m))]
        for i in range(m + lag):
            turn = ((Kind.INPUT, i), (Kind.WEIGHT, i - lag), (Kind.FORWARD, i + ahead))
            actions += [Action(rank, kind, index) for kind, index in turn if 0 <= index < m]
        ranks.append(tuple(actions))
    return Schedule(ranks=tuple(ranks))


def zbv(num_ranks: int, num_micro_batches: int) -> Schedule:
    """ZB-V: rank r holds stages r and ``2 p - 1 - r``, so that a micro-batch turns round on the last rank.

    Every rank keeps at most 2 p half-size passes. With fewer than ``2 p - 1`` micro-batches, the order of that many
    with the missing ones left out.

    Source: arXiv 2401.10241, section 6, figure 8; the order of ``ScheduleZBVZeroBubble`` in PyTorch.
    """
    check_sizes(num_ranks, num_micro_batches)
    planned = max(num_micro_batches, 2 * num_ranks - 1)
    return Schedule(
        ranks=tuple(
            tuple(action for action in _fold(rank, num_ranks, planned) if action.micro_batch < num_micro_batches)
            for rank in range(num_ranks)
        )
    )


def _fold(rank: int, p: int, m: int) -> Iterator[Action]:
    """The order of one rank of a V, for at least ``2 p - 1`` micro-batches; ``a`` is its stage on the way down."""
    a, b = rank, 2 * p - 1 - rank
    counts: Counter[tuple[int, Kind]] = Counter()
    down, up = ("aF", "aI", "aW"), ("bF", "bI", "bW")
    program = [
        *["aF"] * (2 * (p - rank) - 1),
        *["bF", "aF"] * rank,
        *up * (p - rank),
        *(down + up) * (m - (2 * p - 1 - rank)),  # until every forward down has run
        *(down[1:] + up) * (p - 1 - rank),  # until every forward up has
        *["aI", "bI"] * rank,
        *down[1:] * (p - rank),
        *["bW"] * rank,
        *["aW"] * rank,
    ]
    for word in program:
        stage, kind = a if word[0] == "a" else b, Kind(word[1])
        yield Action(stage, kind, counts[stage, kind])
        counts[stage, kind] += 1


def check_sizes(num_ranks: int, num_micro_batches: int, stages_per_rank: int = 1) -> None:
    """Every size of a schedule is 1 or more."""
    sizes = {"num_ranks": num_ranks, "num_micro_batches": num_micro_batches, "stages_per_rank": stages_per_rank}
    for name, value in sizes.items():
        if value < 1:
            raise InvalidInput(name, value, "must be 1 or more", 1)
