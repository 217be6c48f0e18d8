"""The communication groups of a rank: a picture that lights the ranks it communicates with, and a table of its traffic.

Each rank is a link to the same page for that rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from markupsafe import Markup

from autotuner.report.charts import Drawing
from autotuner.report.drawing import element, picture, rect, text
from autotuner.report.links import link_in_words
from autotuner.report.report import Cells, Column, Lines, Quantity, Section, Swatch, Table
from autotuner.search.explain.communication import RankGroup, RankGroups

GROUP_CLASSES = {
    "tensor": "backward",
    "context": "recompute",
    "pipeline": "communication",
    "data": "optimizer",
    "expert": "other",
}
"""CSS class by group of the ranks that communicate with this one. Expert groups lie inside the other groups, so only
the table shows them."""

MOST_NODES = 16
"""Maximum number of nodes in the picture; of more, the first nodes with a rank of the groups are shown."""

_BRIGHT = ("communication", "optimizer")
_LIT = ("tensor", "context", "pipeline", "data")
_CELL, _GAP, _PAD, _HEAD = 28.0, 4.0, 8.0, 22.0
_BETWEEN = 18.0
_TOP, _LEFT = 24.0, 2.0
_MOST_COLUMNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrid(Drawing):
    """A picture of the ranks of a layout on their nodes; the communication groups of one rank are highlighted."""

    groups: RankGroups
    address: Callable[[int], str]
    """Function that returns the address of this page for another rank."""

    @property
    def look(self) -> str:
        """CSS class of the box around the picture, for the style sheet of pages."""
        return "ranks-drawn"

    @property
    def drawn(self) -> Markup:
        """The picture of the ranks as SVG markup, for a page."""
        groups, nodes = self.groups, shown_nodes(self.groups)
        grid = _Grid.of(groups, nodes)
        parts = [*_stages(grid, groups)]
        lit = _lit(groups)
        for place, node in enumerate(nodes):
            x, y = grid.place(place)
            parts.append(rect(x, y, grid.node_width, grid.node_height, "node", radius=6))
            parts.append(text(x + _PAD, y + 15, f"node {node}"))
            parts.extend(_ranks(grid, groups, node, (x, y), lit, self.address))
        says = f"Ranks on nodes: the groups of rank {groups.rank} are highlighted, on {len(nodes)} nodes."
        return picture(grid.width, grid.height, parts, says, has_links=True)


def shown_nodes(groups: RankGroups) -> tuple[int, ...]:
    """Return the nodes to draw: all nodes if there are few, else the first nodes that hold ranks of the groups.

    The node of the chosen rank is always among them.
    """
    if groups.num_nodes <= MOST_NODES:
        return tuple(range(groups.num_nodes))
    lit = {groups.node_of(rank) for group in groups.groups for rank in group.ranks}
    found = sorted(lit, key=lambda node: (node != groups.node, node))[:MOST_NODES]
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """The positions of nodes, and of ranks inside the nodes."""

    columns: int
    """Number of nodes side by side; if pipeline ranks have whole nodes, the number of pipeline ranks."""
    by_stage: bool
    """True if each column is a pipeline rank."""
    across: int
    """Number of ranks side by side in a node."""
    down: int
    """Number of rows of ranks in a node."""
    num_nodes: int
    """Number of nodes shown."""

    @classmethod
    def of(cls, groups: RankGroups, nodes: Sequence[int]) -> _Grid:
        stages = groups.world_size // groups.ranks_per_stage
        whole = groups.ranks_per_stage % groups.ranks_per_node == 0
        everything = len(nodes) * groups.ranks_per_node >= groups.world_size
        by_stage = whole and everything and groups.stages_in_order and 1 < stages <= 8
        across = 4 if groups.ranks_per_node <= 16 else 8
        per_node = min(groups.ranks_per_node, groups.world_size)
        return cls(
            columns=stages if by_stage else min(_MOST_COLUMNS, len(nodes)),
            by_stage=by_stage,
            across=min(across, per_node),
            down=ceil(per_node / across),
            num_nodes=len(nodes),
        )

    @property
    def node_width(self) -> float:
        return max(2 * _PAD + self.across * (_CELL + _GAP) - _GAP, 76.0)

    @property
    def node_height(self) -> float:
        return _HEAD + self.down * (_CELL + _GAP) - _GAP + _PAD

    @property
    def rows(self) -> int:
        return ceil(self.num_nodes / self.columns)

    @property
    def width(self) -> float:
        return 2 * _LEFT + self.columns * (self.node_width + _BETWEEN) - _BETWEEN

    @property
    def top(self) -> float:
        return _TOP if self.by_stage else 2.0

    @property
    def height(self) -> float:
        return self.top + self.rows * (self.node_height + _BETWEEN) - _BETWEEN + 4

    def place(self, number: int) -> tuple[float, float]:
        """Return the upper left corner of a node; nodes of the same pipeline rank stand below each other."""
        if self.by_stage:
            column, row = divmod(number, self.rows)
        else:
            row, column = divmod(number, self.columns)
        return _LEFT + column * (self.node_width + _BETWEEN), self.top + row * (self.node_height + _BETWEEN)


def _stages(grid: _Grid, groups: RankGroups) -> Iterator[Markup]:
    if grid.by_stage:
        for stage in range(grid.columns):
            x, _ = grid.place(stage * grid.rows)
            look = "strong" if stage == groups.pipeline_rank else ""
            yield text(x + grid.node_width / 2, 14, f"pipeline rank {stage}", look, "middle")


def _lit(groups: RankGroups) -> dict[int, str]:
    """Return the CSS class of each rank that communicates with this one.

    A rank that shares several groups with it gets the class of the innermost group.
    """
    found: dict[int, str] = {}
    for group in groups.groups:
        if group.axis in _LIT:
            for rank in group.ranks:
                found.setdefault(rank, GROUP_CLASSES[group.axis])
    return found | {groups.rank: "me"}


def _ranks(
    grid: _Grid,
    groups: RankGroups,
    node: int,
    corner: tuple[float, float],
    lit: dict[int, str],
    address: Callable[[int], str],
) -> Iterator[Markup]:
    for number, rank in enumerate(groups.ranks_on(node)):
        row, column = divmod(number, grid.across)
        x = corner[0] + _PAD + column * (_CELL + _GAP)
        y = corner[1] + _HEAD + row * (_CELL + _GAP)
        look = lit.get(rank, "")
        words = "" if not look else "on-communication bold" if look in _BRIGHT else "on-dark"
        size = "small-rank" if rank > 999 else ""
        yield element(
            "a",
            rect(x, y, _CELL, _CELL, f"rank {look}".strip(), radius=4),
            text(x + _CELL / 2, y + _CELL / 2 + 4, str(rank), f"{words} {size}".strip(), "middle"),
            href=address(rank),
            aria_label=f"rank {rank}",
            data_zoom="",
        )


# ------------------------------------------------------------------ the section
_MANY = 8
"""Largest number of ranks of a group that are all listed; of more, only the first and the last are."""


def ranks_section(groups: RankGroups, address: Callable[[int], str]) -> Section:
    """Return a section on the communication groups of a rank: a picture and a table.

    Args:
        groups: The groups of the rank.
        address: Returns the address of the same page for another rank.
    """
    columns = (
        Column("group", is_number=False),
        Column("ranks", is_number=False),
        Column("crosses", is_number=False),
        Column("per step"),
        Column("waits"),
    )
    stages = groups.world_size // groups.ranks_per_stage
    where = f"node {groups.node}" + (f", pipeline rank {groups.pipeline_rank}" if stages > 1 else "")
    rows: list[tuple[Cells, ...]] = [(Swatch("me", "rank"), str(groups.rank), where, "", "")]
    rows += [_row(group, groups) for group in groups.groups]
    shown, num_nodes = len(shown_nodes(groups)), -(-groups.world_size // groups.ranks_per_node)
    said = [
        "Predicted: bytes that pass over a rank's link in a step, and the time of the transfer that computation "
        "does not hide."
    ]
    if not groups.groups:
        said.insert(0, "It communicates with no other rank.")
    if shown != num_nodes:
        said.append(f"The picture has {shown} of {num_nodes} nodes: the nodes with ranks of its groups.")
    return Section(
        id="ranks",
        title="Ranks on nodes",
        note=f"The groups of rank {groups.rank}, on {where}; choose another rank to see its groups.",
        blocks=(
            RankGrid(groups=groups, address=address),
            Table(columns=columns, rows=rows, name=f"Groups of rank {groups.rank}, table", is_compact=True),
            Lines(items=(" ".join(said),), is_quiet=True),
        ),
    )


def _row(group: RankGroup, groups: RankGroups) -> tuple[Cells, ...]:
    place = f"inside node {groups.node}" if group.num_nodes == 1 else f"across {group.num_nodes} nodes"
    return (
        Swatch(GROUP_CLASSES[group.axis], f"{group.axis} {group.letters}"),
        _ranks_in_words(group.ranks),
        ", ".join((group.link, place, *map(link_in_words, group.slow_links))),
        Quantity(value=group.sent_bytes or None, unit="bytes", source="predicted"),
        Quantity(value=group.exposed_s or None, unit="s", source="predicted"),
    )


def _ranks_in_words(ranks: Sequence[int]) -> str:
    """Return ranks as text: ``20 21 22 23``, or ``0 64 … 448`` with their number."""
    if len(ranks) <= _MANY:
        return " ".join(map(str, ranks))
    return f"{ranks[0]} {ranks[1]} … {ranks[-1]} ({len(ranks)})"
