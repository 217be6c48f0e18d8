"""Reports as HTML: one function for each kind of block and of cell. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from autotuner.core.layout import Layout
from autotuner.report.cells import draw_cell, draw_range_axis, draw_shares, key
from autotuner.report.charts import (
    BarCell,
    Drawing,
    GrowthCell,
    Intervals,
    MemoryCell,
    Parallel,
    Plot,
    RangeCell,
    Shares,
    Stacks,
    Topology,
)
from autotuner.report.cluster_pictures import draw_topology
from autotuner.report.drawing import draw, element
from autotuner.report.layouts import chips, degrees
from autotuner.report.parallel import draw_parallel
from autotuner.report.report import (
    Block,
    Button,
    Calendar,
    Cell,
    Cells,
    Chip,
    Choices,
    Code,
    Column,
    Figure,
    Folded,
    Lines,
    Link,
    Matrix,
    Moment,
    Notice,
    Pager,
    Quantity,
    Quiet,
    Rank,
    Report,
    Section,
    State,
    Strong,
    Swatch,
    Table,
    Words,
)
from autotuner.report.scale import Scale
from autotuner.report.words import has_wide_interval, moment, parts_of, plain, sentence, with_unit


class Html:
    """Renders reports as HTML.

    Args:
        root: Path before every address of the service.
        csrf: CSRF token that forms contain; empty: forms need none.
    """

    def __init__(self, root: str = "", csrf: str = "") -> None:
        self._root = root
        self._csrf = csrf

    # ------------------------------------------------------------------ sections
    def facts(self, report: Report) -> Markup:
        """Return the line of facts below the headline of a report, as HTML."""
        return _joined([self.cell(one) for one in report.facts], " ")

    def sections(self, report: Report) -> Markup:
        """Return all sections of a report. Consecutive sections with ``is_half`` stand side by side."""
        shown: list[Markup] = []
        for is_half, group in groupby(report.sections, key=lambda one: one.is_half):
            drawn = list(map(self.section, group))
            shown += [element("div", *drawn, class_="two")] if is_half and len(drawn) > 1 else drawn
        return Markup("\n").join(shown)

    def section(self, one: Section, *, tools: str = "", id: str = "", zooms: str = "") -> Markup:  # noqa: A002
        """Return a section of a report as HTML, with its heading; a section without a title has only its blocks.

        Args:
            one: The section.
            tools: Forms and links next to the heading, as markup.
            id: HTML id of the section; the heading has ``one.key``.
            zooms: Query parameter that requests this section alone. A script replaces the section with it when a reader
                follows a zoom link; empty: the section has no zoom links.
        """
        note = [element("p", _prose(one.note), class_="quiet")] if one.note else []
        inside = [self._block(block, one) for block in one.blocks]
        if not one.title:
            return element("section", *note, *inside)
        heading: Markup = element("h2", one.title, id=one.key, class_="sr" if one.is_silent else None)
        if note or one.glyphs or tools:
            heading = element("div", heading, *note, key(one.glyphs), Markup(tools), class_="section-head")
        named = {"id": id or None, "aria_labelledby": one.key, "data_zoomable": zooms or None}
        return element("section", heading, *inside, **named)

    def blocks(self, one: Section) -> Markup:
        """Return the blocks of a section without its heading, for a template that writes its own heading."""
        return Markup("\n").join(self._block(block, one) for block in one.blocks)

    def _block(self, block: Block, section: Section) -> Markup:
        match block:
            case Table():
                return self.table(block, section)
            case Lines():
                return self.lines(block)
            case Code():
                return self._code(block)
            case Notice():
                return self._notice(block)
            case Folded():
                summary = _joined([self.cell(one) for one in _every(block.summary)], " ")
                inside = (element("summary", summary), *(self._block(one, section) for one in block.blocks))
                return element("details", *inside, id=block.id or None, open="" if block.is_open else None)
            case Calendar():
                return self._calendar(block)
            case Choices():
                return self._choices(block)
            case Pager():
                return self._pager(block)
            case Drawing():
                named = {"role": "region", "aria_label": f"{section.title}, picture", "data_zoomed": ""}
                drawn = element("div", block.drawn, class_=block.look)
                return element("div", drawn, class_="scroll", tabindex="0", **named)
            case Matrix():
                return self._matrix(block, section)
            case Parallel():
                drawn = element("div", draw_parallel(block), class_="parallel")
                return element("div", drawn, class_="scroll", role="group", aria_labelledby=section.key, tabindex="0")
            case Plot() | Intervals() | Stacks() | Shares() | Topology():
                return _drawn(block)
        return self._figures(block)

    def _figures(self, figures: Sequence[Figure]) -> Markup:
        is_large = any(one.is_first for one in figures)
        shown = (self._figure(one, is_large=is_large) for one in figures)
        is_small = all(isinstance(one.value, str) for one in figures)  # words are not shown in large letters
        look = "facts trial-figures" if is_large else "facts small" if is_small else "facts"
        return element("dl", *shown, class_=look)

    def _figure(self, one: Figure, *, is_large: bool) -> Markup:
        source = next((cell.source for cell in _every(one.value) if isinstance(cell, Quantity)), None)
        looks = ["figure", *(["first"] if one.is_first else []), *filter(None, [source])]
        inside = self.cells(one.value, named="simulated" if is_large else one.name)
        look = " ".join(looks) if is_large else None
        return element("div", element("dt", one.name), element("dd", inside), class_=look)

    def _code(self, code: Code) -> Markup:
        heading = element("h3", code.name) if code.name else Markup()
        look = None if code.id else "copied"
        named = {"id": code.id or None, "class_": look, "aria_label": code.name or None}
        return heading + element("pre", code.text, tabindex="0", **named)

    def _notice(self, notice: Notice) -> Markup:
        look, lines = f"notice {notice.look}".strip(), [*map(self._line, (notice.words, *notice.more))]
        if not notice.title and not notice.more:
            return element("p", lines[0], class_=look)
        head = [element("h3", notice.title)] if notice.title else []
        return element("div", *head, *(element("p", one) for one in lines), class_=look)

    def lines(self, lines: Lines) -> Markup:
        """Return statements of a report as an HTML list, or as paragraphs."""
        said = [self._line(one) for one in lines.items]
        if lines.is_quiet or not lines.is_list:
            return Markup("").join(element("p", one, class_="noted" if lines.is_quiet else None) for one in said)
        return element("ul", *(element("li", one) for one in said), class_="said") if said else Markup()

    def _line(self, cells: Cells) -> Markup:
        if isinstance(cells, str):
            return _prose(sentence(cells))
        return _joined([self.cell(one) for one in _every(cells)], " ")

    # ------------------------------------------------------------------ tables
    def table(self, table: Table, section: Section | None = None) -> Markup:
        """Return a table as markup. A table without rows is replaced by its text ``if_empty``.

        Args:
            table: The table; it needs a name if no section is given.
            section: Section whose title names the table; None: the table has its own name.
        """
        if not table.rows:
            return element("p", _prose(table.if_empty), class_="quiet") if table.if_empty else Markup()
        places = [place for place, column in enumerate(table.columns) if not column.is_long]
        columns = [table.columns[place] for place in places]
        by_ends = [has_wide_interval(cell for row in table.rows for cell in _every(row[place])) for place in places]
        rows = (
            self._row([row[place] for place in places], columns, table, at, by_ends=by_ends)
            for at, row in enumerate(table.rows)
        )
        caption = [element("caption", _prose(table.caption))] if table.caption else []
        head = element("thead", *self._heads(columns)) if any(one.name for one in columns) else Markup()
        body = element("tbody", *rows)
        is_facing = any(one.group for one in columns)
        look = "facing" if is_facing else "compact low" if table.is_compact else "cards"
        look += {"": "", "ranking": " ranking", "untried": " ranking pencil"}[table.look]
        whole = element("table", *caption, head, body, class_=look)
        name = table.name or ("" if section and section.title else table.caption or "Table")
        named = {"aria_label": name} if name or not section else {"aria_labelledby": section.key}
        role = "region" if name else "group"  # two landmarks must not have the same name
        return element("div", whole, class_="scroll", role=role, **named, tabindex="0")

    def _heads(self, columns: Sequence[Column]) -> Iterator[Markup]:
        """Yield the row of column heads, below a row with the heads of groups if there are groups."""
        if not any(one.group for one in columns):
            yield element("tr", *map(self._head, columns))
            return
        first: list[Markup] = []
        for group, those in groupby(columns, key=lambda one: one.group):
            if group:
                first.append(element("th", group, scope="colgroup", colspan=len(list(those)), class_="group"))
            else:
                first += [self._head(one, rows=2) for one in those]
        yield element("tr", *first)
        yield element("tr", *(self._head(one) for one in columns if one.group))

    def _head(self, column: Column, rows: int | None = None) -> Markup:
        words: str = with_unit(column)
        if not words:
            return element("td")
        words = element("span", words, class_="sr") if column.is_drawn else words
        words = words + draw_range_axis(column.axis) if column.axis else words
        words = self.cell(replace(column.sort, words=words)) if column.sort else words
        if column.group and column.name in ("measured", "described"):
            words = element("span", words, class_="measured-tag" if column.name == "measured" else "predicted-tag")
        return element("th", words, scope="col", class_=_look(column), rowspan=rows, aria_sort=column.order or None)

    def _row(
        self, row: Sequence[Cells], columns: Sequence[Column], table: Table, at: int, *, by_ends: Sequence[bool]
    ) -> Markup:
        shown = []
        for place, (cells, column) in enumerate(zip(row, columns, strict=True)):
            inside = self._choices_of(cells) if column.look == "choices" else Markup()
            named = f"{column.name} {table.source or ''}"
            inside = inside or self.cells(cells, by_ends=by_ends[place], scale=column.scale, named=named)
            source = next((one.source for one in _every(cells) if isinstance(one, Quantity)), None)
            is_one = column.look == "degree" and cells == "1"
            look = " ".join(filter(None, (_look(column), source, "one" if is_one else ""))) or None
            if place or column.look:
                is_hidden = column.is_drawn or column.is_minor or table.is_compact or column.look in ("rank", "choices")
                label = "" if is_hidden else with_unit(column)  # on a phone, tables have no heads
                shown.append(element("td", inside, class_=look, data_label=label or None))
            else:
                shown.append(element("th", inside, scope="row", class_=look))
        is_sum = bool(row) and isinstance(row[0], Strong)
        mark = "best" if at == table.best_row else "whole" if is_sum else None
        trial = table.trials[at] if table.trials else None
        return element("tr", *shown, class_=mark, data_trial=None if trial is None else str(trial))

    def _choices_of(self, cells: Cells) -> Markup:
        """Return the cells as chips, one after the other."""
        return element("span", _joined([self.cell(one) for one in _every(cells)], " "), class_="chips")

    def _matrix(self, matrix: Matrix, section: Section) -> Markup:
        ends = range(len(matrix.cells))
        heads = (element("th", str(end), scope="col", class_="number") for end in ends)
        rows = (
            element(
                "tr",
                element("th", str(row), scope="row", class_="number"),
                *(self._pair(matrix.cells[row][column], is_bad=(row, column) in matrix.bad) for column in ends),
            )
            for row in ends
        )
        head = element("thead", element("tr", element("td"), *heads))
        whole = element(
            "table", element("caption", matrix.caption), head, element("tbody", *rows), class_="facing pairs"
        )
        return element("div", whole, class_="scroll", role="region", aria_labelledby=section.key, tabindex="0")

    def _pair(self, cell: Cell, *, is_bad: bool) -> Markup:
        source = cell.source if isinstance(cell, Quantity) else None if cell else "quiet"
        looks = " ".join(filter(None, ("number", source, "ailing" if is_bad else None)))
        mark = Markup(" ") + element("span", "!", aria_label="unhealthy", role="img") if is_bad else Markup()
        return element("td", self.cell(cell) + mark, class_=looks)

    # ------------------------------------------------------------------ cells
    def cells(
        self, cells: Cells, *, by_ends: bool | None = None, scale: Scale | None = None, named: str = ""
    ) -> Markup:
        """Return the cells at one place of a report as markup, each on its own line.

        The arguments are those of ``terminal.text_of``.
        """
        shown = [self.cell(one, by_ends=by_ends, scale=scale, named=named) for one in _every(cells)]
        return _joined(shown, Markup("<br>"))

    def cell(  # noqa: PLR0912 -- one line for each kind
        self, cell: Cell, *, by_ends: bool | None = None, scale: Scale | None = None, named: str = ""
    ) -> Markup:
        """Return one cell of a report as markup, such as a number with its unit.

        The arguments are those of ``terminal.text_of``.
        """
        match cell:
            case None:
                return escape("–")
            case Quantity():
                number, spread = parts_of(cell, by_ends=by_ends, scale=scale)
                small = " ".join(filter(None, (spread, cell.beside)))
                is_told = cell.source != "simulated" or cell.value is None or "simulated" in named.lower()
                tag = element("span", "simulated", class_="simulated-tag")
                marks = [element("small", small)] if small else []
                return _joined([escape(number), *marks, *([] if is_told else [tag])], " ")
            case Moment():
                at = moment(cell.at, cell.time_zone, has_seconds=cell.has_seconds)
                return element("time", at, datetime=moment(cell.at))
            case State():
                return element("span", plain(cell.word), class_=f"state {cell.look or cell.word}")
            case Link():
                more = {"title": cell.says or None, "data_swap": cell.swaps or None}
                return element("a", cell.words, href=self.address(cell), id=cell.key or None, **more)
            case Rank():
                tied = element("span", " tied with the first,", class_="sr")
                mark = element("span", "=", tied, class_="tie-mark", title="not distinguishable from rank 1")
                return (mark if cell.is_tied else Markup()) + str(cell.place)
            case Quiet() | Strong():
                is_strong = isinstance(cell, Strong)
                return element("strong" if is_strong else "span", cell.words, class_=None if is_strong else "quiet")
            case Chip():
                return element("span", cell.words, class_=f"chip {cell.look}".strip())
            case Swatch():
                return element("span", class_=f"swatch {cell.look}") + escape(cell.words)
            case Words():
                return element(
                    "code",
                    cell.text,
                    class_="words",
                    title="Click to select the layout, so that you can copy it to --layout",
                )
            case BarCell() | RangeCell() | MemoryCell() | GrowthCell():
                return draw_cell(cell)
            case Layout():
                return self.layout(cell)
            case Button():
                return self._button(cell)
        return escape(cell)

    def layout(self, layout: Layout) -> Markup:
        """Return a layout: its degrees as letters and numbers, its other options as chips (short words in boxes)."""
        shown = [one for one in degrees(layout) if one.value > 1 or one.letters == "mb"]
        heading = (element("span", element("i", one.letters, title=one.name), str(one.value)) for one in shown)
        said = (element("span", chip, class_="chip") for chip in chips(layout))
        return element("span", *heading, class_="layout") + Markup(" ") + element("span", *said, class_="chips")

    def _button(self, button: Button) -> Markup:
        carried = [element("input", type="hidden", name="csrf", value=self._csrf)] if self._csrf else []
        pressed = element("button", button.words, aria_label=button.says)
        return element("form", *carried, pressed, method="post", action=f"{self._root}/{quote(button.path)}")

    def address(self, link: Link) -> str:
        """Return the address that a link leads to."""
        path = "/".join([link.kind, *([quote(link.id, safe="")] if link.id else [])])
        query = urlencode(link.query, safe=",:")
        return f"{self._root}/{path}{'?' * bool(query)}{query}{'#' * bool(link.part)}{link.part}"

    # ------------------------------------------------------------------ plain text of cells
    def _choices(self, choices: Choices) -> Markup:
        links = (self._choice(link, is_chosen=is_chosen) for link, is_chosen in choices.links)
        return element("ul", *links, class_="formats", aria_label=choices.name)

    def _choice(self, link: Link, *, is_chosen: bool) -> Markup:
        current = "true" if is_chosen else None
        return element(
            "li", element("a", link.words, href=self.address(link), id=link.key or None, aria_current=current)
        )

    def _pager(self, pager: Pager) -> Markup:
        both = (("prev", pager.newer), ("next", pager.older))
        links = [element("a", one.words, rel=rel, href=self.address(one)) for rel, one in both if one]
        return element("nav", *links, class_="pages", aria_label="Pages") if links else Markup()

    # ------------------------------------------------------------------ days
    def _calendar(self, calendar: Calendar) -> Markup:
        """Return the days of a calendar as weeks that start on Monday."""
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
        return element("a", inside, class_=look, href=self.address(link), title=said, id=f"night-{day}")


def _drawn(chart: Plot | Intervals | Stacks | Shares | Topology) -> Markup:
    match chart:
        case Shares():
            return draw_shares(chart)
        case Topology():
            return draw_topology(chart)
    return draw(chart)


def _day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _prose(text: str) -> Markup:
    """Return a statement in which words between back ticks are set as code."""
    parts = (element("code", one) if place % 2 else escape(one) for place, one in enumerate(text.split("`")))
    return Markup().join(parts)


def _look(column: Column) -> str | None:
    looks = {
        "number": column.is_number and not column.is_drawn and column.look not in ("degree", "choices"),
        "plot": column.is_drawn,
        "wrap": column.may_wrap or column.look == "choices",
        "hide-narrow": column.is_minor,
        {"degree": "deg", "rank": "rankno"}.get(column.look, column.look): column.look not in ("", "choices"),
    }
    return " ".join(look for look, is_so in looks.items() if is_so) or None


def _every(cells: Cells) -> tuple[Cell, ...]:
    return cells if isinstance(cells, tuple) else (cells,)


def _joined(parts: Sequence[Markup], between: str) -> Markup:
    """Return the parts with a separator between them, but with no space before a punctuation mark."""
    joined = Markup()
    for part in parts:
        is_mark = between == " " and part.striptags()[:1] in (",", ";", ":", ".")
        joined += part if is_mark or not joined else Markup(between) + part
    return joined
