"""Reports as HTML: one function for each kind of block and of cell. Everything that a caller wrote is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote

from markupsafe import Markup, escape

from autotuner.core.layout import Layout
from autotuner.report.charts import Intervals, Plot, Stacks
from autotuner.report.drawing import draw, element
from autotuner.report.layouts import chips, degrees
from autotuner.report.report import (
    Block,
    Calendar,
    Cell,
    Cells,
    Code,
    Column,
    Figure,
    Lines,
    Link,
    Moment,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Strong,
    Table,
)
from autotuner.report.words import has_wide_interval, moment, parts_of, plain, sentence


class Html:
    """Renders reports for pages below one root.

    Args:
        root: Path before every address of the service.
    """

    def __init__(self, root: str = "") -> None:
        self._root = root

    # ------------------------------------------------------------------ sections
    def facts(self, report: Report) -> Markup:
        """Return the line of facts below the headline."""
        return _joined([self.cell(one) for one in report.facts], " ")

    def sections(self, report: Report) -> Markup:
        """Return all sections."""
        return Markup("\n").join(map(self.section, report.sections))

    def section(self, one: Section) -> Markup:
        """Return a section under its heading, or its blocks where it has no title."""
        note = [element("p", one.note, class_="quiet")] if one.note else []
        inside = [*note, *(self._block(block, one) for block in one.blocks)]
        if not one.title:
            return element("section", *inside)
        return element("section", element("h2", one.title, id=one.key), *inside, aria_labelledby=one.key)

    def _block(self, block: Block, section: Section) -> Markup:
        match block:
            case Table():
                return self._table(block, section)
            case Lines():
                return self._lines(block)
            case Code():
                return element("pre", element("code", block.text), tabindex="0")
            case Calendar():
                return self._calendar(block)
            case Plot() | Intervals() | Stacks():
                return draw(block)
        return self._figures(block)  # type: ignore[arg-type]  # what is left is a sequence of figures

    def _figures(self, figures: Sequence[Figure]) -> Markup:
        shown = (element("div", element("dt", one.name), element("dd", self.cells(one.value))) for one in figures)
        return element("dl", *shown, class_="facts")

    def _lines(self, lines: Lines) -> Markup:
        said = [self._line(one) for one in lines.items]
        if lines.is_quiet:
            return Markup("").join(element("p", one, class_="quiet") for one in said)
        return element("ul", *(element("li", one) for one in said), class_="said") if said else Markup()

    def _line(self, cells: Cells) -> Markup:
        if isinstance(cells, str):
            return escape(sentence(cells))
        return _joined([self.cell(one) for one in _every(cells)], " ")

    # ------------------------------------------------------------------ tables
    def _table(self, table: Table, section: Section) -> Markup:
        if not table.rows:
            return element("p", table.if_empty, class_="quiet") if table.if_empty else Markup()
        by_ends = has_wide_interval(cell for row in table.rows for cells in row for cell in _every(cells))
        heads = (element("th", one.name, scope="col", class_=_look(one)) for one in table.columns)
        rows = (self._row(row, table.columns, by_ends=by_ends) for row in table.rows)
        caption = [element("caption", table.caption)] if table.caption else []
        head = element("thead", element("tr", *heads))
        whole = element("table", *caption, head, element("tbody", *rows), class_="cards")
        named = {"aria_labelledby": section.key} if section.title else {"aria_label": table.caption or "Table"}
        return element("div", whole, class_="scroll", role="region", **named, tabindex="0")

    def _row(self, row: Sequence[Cells], columns: Sequence[Column], *, by_ends: bool) -> Markup:
        shown = []
        for place, (cells, column) in enumerate(zip(row, columns, strict=True)):
            inside = self.cells(cells, by_ends=by_ends)
            source = next((one.source for one in _every(cells) if isinstance(one, Quantity)), None)
            look = " ".join(filter(None, (_look(column), source))) or None
            if place:
                shown.append(element("td", inside, class_=look, data_label=column.name or None))
            else:
                shown.append(element("th", inside, scope="row", class_=look))
        return element("tr", *shown)

    # ------------------------------------------------------------------ cells
    def cells(self, cells: Cells, *, by_ends: bool | None = None) -> Markup:
        """Return cells below each other."""
        return _joined([self.cell(one, by_ends=by_ends) for one in _every(cells)], Markup("<br>"))

    def cell(self, cell: Cell, *, by_ends: bool | None = None) -> Markup:  # one line for each kind
        """Return one cell."""
        match cell:
            case None:
                return escape("–")
            case Quantity():
                number, spread = parts_of(cell, by_ends=by_ends)
                small = Markup(" ") + element("small", spread) if spread else Markup()
                tag = element("span", "simulated", class_="simulated-tag") if cell.source == "simulated" else Markup()
                return escape(number) + small + (Markup(" ") + tag if tag and cell.value is not None else Markup())
            case Moment():
                return element("time", moment(cell.at, cell.time_zone), datetime=moment(cell.at))
            case State():
                return element("span", plain(cell.word), class_=f"state {cell.word}")
            case Link():
                return element("a", cell.words, href=self._address(cell), id=cell.key or None)
            case Quiet():
                return element("span", cell.words, class_="quiet")
            case Strong():
                return element("strong", cell.words)
            case Layout():
                return self.layout(cell)
        return escape(cell)

    def layout(self, layout: Layout) -> Markup:
        """Return a layout as degrees, and its other choices as chips."""
        shown = [one for one in degrees(layout) if one.value > 1 or one.letters == "mb"]
        heading = (element("span", element("i", one.letters, title=one.name), str(one.value)) for one in shown)
        said = (element("span", chip, class_="chip") for chip in chips(layout))
        return element("span", *heading, class_="layout") + Markup(" ") + element("span", *said, class_="chips")

    def _address(self, link: Link) -> str:
        return f"{self._root}/{link.kind}/{quote(link.id, safe='')}"

    # ------------------------------------------------------------------ days
    def _calendar(self, calendar: Calendar) -> Markup:
        """Return days as weeks, Monday first."""
        by_day = {datetime.fromtimestamp(at, UTC).date(): (word, link) for at, word, link in calendar.days}
        if not by_day:
            return Markup()
        first, last = min(by_day), max(by_day)
        mondays = [first - timedelta(days=first.weekday())]
        while mondays[-1] + timedelta(days=7) <= last:
            mondays.append(mondays[-1] + timedelta(days=7))
        meanings = (element("span", element("i", class_=f"night {word}"), plain(word)) for word in calendar.words)
        names = (element("th", name, scope="col") for name in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
        head = element("tr", element("th", element("span", "Week from", class_="sr"), scope="col"), *names)
        rows = (
            element(
                "tr",
                element("th", _day(monday), scope="row"),
                *(element("td", self._night(monday + timedelta(days=day), by_day)) for day in range(7)),
            )
            for monday in mondays
        )
        whole = element("table", element("thead", head), element("tbody", *rows), class_="nights")
        return element("p", *meanings, class_="key") + whole

    def _night(self, day: date, by_day: dict[date, tuple[str, Link | None]]) -> Markup:
        if day not in by_day:
            return element("span", class_="night")
        word, link = by_day[day]
        said = f"{_day(day)}: {plain(word)}"
        inside, look = element("span", said, class_="sr"), f"night {word}"
        if link is None:
            return element("span", inside, class_=look, title=said)
        return element("a", inside, class_=look, href=self._address(link), title=said, id=f"night-{day}")


def _day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _look(column: Column) -> str | None:
    return " ".join(["number"] * column.is_number + ["hide-narrow"] * column.is_minor) or None


def _every(cells: Cells) -> tuple[Cell, ...]:
    return cells if isinstance(cells, tuple) else (cells,)


def _joined(parts: Sequence[Markup], between: str) -> Markup:
    """Return parts with something between them, but no space before a mark of punctuation."""
    joined = Markup()
    for part in parts:
        is_mark = between == " " and part.striptags()[:1] in (",", ";", ":", ".")
        joined += part if is_mark or not joined else Markup(between) + part
    return joined
