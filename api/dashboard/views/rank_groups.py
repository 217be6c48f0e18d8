"""The groups of a rank as pages show them: the picture of the nodes, and a table of the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.rank_grid import GROUP_CLASSES, rank_grid, shown_nodes
from autotuner.core.units import format_bytes, format_seconds
from autotuner.search.explain.rank_groups import RankGroup, RankGroups
from autotuner.search.text.faults import link_in_words

_MANY = 8
"""Ranks of a group that are told one by one; of more, the first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in words.

    Attributes:
        look: Class of its ranks in the picture.
        crosses: Which link it crosses: ``nvlink4, inside node 2``.
    """

    name: str
    letters: str
    look: str
    ranks: str
    crosses: str
    sent: str
    waits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroupsView:
    """What the template shows.

    Attributes:
        rank: Whose groups these are.
        where: In which node and stage it lies.
        last_rank: The highest that may be asked for.
        missing: What the picture leaves out; empty where it shows all.
    """

    picture: Markup
    rank: int
    where: str
    last_rank: int
    rows: tuple[GroupRow, ...]
    missing: str


def rank_groups_view(groups: RankGroups, address: Callable[[int], str]) -> RankGroupsView:
    """The view of a rank's groups; ``address`` is where the page shows those of another."""
    shown, stages = len(shown_nodes(groups)), groups.world_size // groups.ranks_per_stage
    num_nodes = -(-groups.world_size // groups.ranks_per_node)
    return RankGroupsView(
        picture=rank_grid(groups, address),
        rank=groups.rank,
        where=f"node {groups.node}" + (f", pipeline rank {groups.pipeline_rank}" if stages > 1 else ""),
        last_rank=groups.world_size - 1,
        rows=tuple(_row(group, groups) for group in groups.groups),
        missing="" if shown == num_nodes else f"{shown} of {num_nodes} nodes: those that hold ranks of its groups.",
    )


def _row(group: RankGroup, groups: RankGroups) -> GroupRow:
    inside = group.num_nodes == 1
    place = f"inside node {groups.node}" if inside else f"across {group.num_nodes} nodes"
    return GroupRow(
        name=group.axis,
        letters=group.letters,
        look=GROUP_CLASSES[group.axis],
        ranks=_ranks_in_words(group.ranks),
        crosses=", ".join((group.link, place, *map(link_in_words, group.slow_links))),
        sent=format_bytes(group.sent_bytes) if group.sent_bytes else "–",
        waits=format_seconds(group.exposed_s) if group.exposed_s else "–",
    )


def _ranks_in_words(ranks: Sequence[int]) -> str:
    """``20 21 22 23``, or ``0 64 … 448`` with how many there are."""
    if len(ranks) <= _MANY:
        return " ".join(map(str, ranks))
    return f"{ranks[0]} {ranks[1]} … {ranks[-1]} ({len(ranks)})"
