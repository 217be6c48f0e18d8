"""The picture of the product's packages ("rooms") and the imports between them, drawn from the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

import grimp

Rooms = Mapping[str, frozenset[str]]
"""The rooms that each room imports, by name."""

_BOX = (112, 34)
_GAP = (20, 44)
_PASSED = 8
"""Width of the gap through which an arrow passes a row."""

_MARGIN = 16
_STYLE = (
    "rect{fill:#f6f7fb;stroke:#4051b5}text{fill:#1c1e2b;font:14px system-ui,sans-serif}path{fill:none;stroke:#7c85b8}"
    "marker path{fill:#7c85b8;stroke:none}"
    "@media(prefers-color-scheme:dark){rect{fill:#262a3d;stroke:#9fa8da}text{fill:#e8eaf6}path{stroke:#8c93bd}"
    "marker path{fill:#8c93bd}}"
)


@cache
def rooms() -> Rooms:
    """Return every top-level package of the product, with the packages that its files import.

    Imports that only type checkers see are left out.
    """
    graph = grimp.build_graph("autotuner", exclude_type_checking_imports=True, cache_dir=None)
    names = {
        name for name in graph.find_children("autotuner") if name != "autotuner.migrations"
    }  # only Alembic runs them
    for name in names:
        if graph.find_children(name):
            graph.squash_module(name)
    found = {name: names & graph.find_modules_directly_imported_by(name) - {name} for name in names}
    return {_short(name): frozenset(map(_short, found[name])) for name in sorted(names, key=_short)}


def _short(name: str) -> str:
    return name.removeprefix("autotuner.")


def floors(imported: Rooms) -> Sequence[Sequence[str]]:
    """Return the packages in layers, the lowest first. Each package is one layer above the highest that it imports.

    Raises:
        RecursionError: Packages import each other in a circle.
    """

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(below) for below in imported[room]), default=-1)

    return [[room for room in imported if floor(room) == level] for level in range(1 + max(map(floor, imported)))]


def needed(imported: Rooms) -> Rooms:
    """Return the imports that a picture must show as arrows: those that no path through other packages implies."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return imported[room].union(*(reached(below) for below in imported[room]))

    return {room: below - frozenset().union(*map(reached, below)) for room, below in imported.items()}


def house_picture() -> str:
    """Return a picture of the packages as SVG: one row for each layer, and arrows from packages to their imports."""
    rows = _rows(needed(rooms()), {room: level for level, row in enumerate(floors(rooms())) for room in row})
    width = max(map(_width, rows)) + 2 * _MARGIN
    height = len(rows) * (_BOX[1] + _GAP[1]) - _GAP[1] + 2 * _MARGIN
    places: dict[_Stop, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        left = (width - _width(row)) / 2
        for stop in row:
            places[stop] = left + _width([stop]) / 2, _MARGIN + level * (_BOX[1] + _GAP[1])
            left += _width([stop]) + _GAP[0]
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker>'
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="The rooms of the product and the imports between them">',
        f"<style>{_STYLE}</style><defs>{marker}</defs>",
        *(_arrow([places[stop] for stop in path]) for path in _paths(rows)),
        *(_box(stop.room, places[stop]) for row in rows for stop in row if not stop.target),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Stop:
    """A room in a row, or the gap through which an arrow to a lower room passes the row."""

    room: str
    target: str = ""
    level: int = 0


def _rows(imported: Rooms, level: Mapping[str, int]) -> Sequence[Sequence[_Stop]]:
    """Return the rows from the highest to the lowest, ordered so that connected rooms stand below each other."""
    rows: list[list[_Stop]] = []
    for floor in range(max(level.values()), -1, -1):
        row = [_Stop(room) for room in imported if level[room] == floor]
        for room, all_ in imported.items():
            row += [_Stop(room, below, floor) for below in sorted(all_) if level[below] < floor < level[room]]
        above = {stop: place for place, stop in enumerate(rows[-1])} if rows else {}
        rows.append(sorted(row, key=lambda stop: (_mean_place(stop, above, imported), stop.room, stop.target)))
    return rows


def _mean_place(stop: _Stop, above: Mapping[_Stop, int], imported: Rooms) -> float:
    """Return the mean position of the arrows from the row above to a stop.

    1.0, the end of the row, if there are none.
    """
    num_above = len(above)
    found = [place / num_above for other, place in above.items() if _leads(other, stop, imported)]
    return sum(found) / len(found) if found else 1.0


def _leads(other: _Stop, stop: _Stop, imported: Rooms) -> bool:
    if stop.target:
        return other.room == stop.room and other.target in ("", stop.target)
    return stop.room in ((other.target,) if other.target else imported[other.room])


def _paths(rows: Sequence[Sequence[_Stop]]) -> Iterator[Sequence[_Stop]]:
    """Yield the stops of each arrow."""
    level = {stop.room: place for place, row in enumerate(rows) for stop in row if not stop.target}
    for room, all_ in needed(rooms()).items():
        for below in sorted(all_):
            passed = [stop for row in rows for stop in row if (stop.room, stop.target) == (room, below)]
            assert len(passed) == level[below] - level[room] - 1
            yield [_Stop(room), *passed, _Stop(below)]


def _width(row: Sequence[_Stop]) -> float:
    return sum((_PASSED if stop.target else _BOX[0]) for stop in row) + (len(row) - 1) * _GAP[0]


def _box(room: str, place: tuple[float, float]) -> str:
    x, y = place
    box = f'<rect x="{x - _BOX[0] / 2:g}" y="{y:g}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>'
    return f'{box}<text x="{x:g}" y="{y + _BOX[1] / 2 + 5:g}" text-anchor="middle">{escape(room)}</text>'


def _arrow(stops: Sequence[tuple[float, float]]) -> str:
    (x, y), *others = stops
    drawn = f"M{x:g} {y + _BOX[1]:g}"
    y += _BOX[1]
    for place, (to_x, to_y) in enumerate(others, start=1):
        drawn += f"C{x:g} {(y + to_y) / 2:g} {to_x:g} {(y + to_y) / 2:g} {to_x:g} {to_y:g}"
        x, y = to_x, to_y + _BOX[1]
        drawn += f"V{y:g}" if place < len(others) else ""
    return f'<path d="{drawn}" marker-end="url(#tip)"/>'
