"""Reports as GitHub Markdown, for pull requests, chats and files. Charts are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from autotuner.report.report import (
    Block,
    Cells,
    Code,
    Figure,
    Folded,
    Lines,
    Notice,
    Picture,
    Report,
    Section,
    Table,
)
from autotuner.report.scale import Scale
from autotuner.report.terminal import every, line_of, text_of
from autotuner.report.words import has_wide_interval, plain, sentence, with_group

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
"""Characters that have a meaning in Markdown or in HTML, and so must be escaped."""

_REFERENCES = re.compile(r"([@#])(?=\w)")
"""``@name`` and ``#1``: GitHub and GitLab turn them into links after they read the Markdown, even behind a
backslash."""

_SIGNS = {
    **dict.fromkeys(("passed", "baseline_set"), "✅ "),
    **dict.fromkeys(("undecided", "no_baseline"), "⚠️ "),
    **dict.fromkeys(("could_not_run", "cancelled"), "⛔ "),
    "failed": "❌ ",
    "running": "⏳ ",
}
"""Signs before a headline, so that the outcomes of many gates can be seen at a glance."""


def markdown(report: Report) -> str:
    """Return a report as GitHub Markdown, such as for a comment on a pull request; pictures are left out."""
    facts = [_plain(line_of(report.facts))] if report.facts else []
    state, sign = (f": {plain(report.state.word)}", _SIGNS.get(report.state.word, "")) if report.state else ("", "")
    lines = [f"## {sign}{_plain(report.headline)}{state}", *facts]
    for section in report.sections:
        lines += _section(section)
    return "\n\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    if all(isinstance(block, Picture) for block in section.blocks):
        return
    if section.title:
        yield f"### {_plain(section.title)}"
    if section.note:
        yield _plain(section.note)
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table() if block.rows:
            yield "\n".join(_table(block))
            yield from (f"> {_plain(words)}" for words in filter(None, [block.caption]))
        case Table():
            yield from filter(None, [_plain(block.if_empty)])
        case Lines():
            yield from (f"> {_line(one)}" if block.is_quiet else _line(one) for one in block.items)
        case Code():
            yield from (f"**{_plain(name)}**" for name in filter(None, [block.name]))
            yield f"```\n{block.text}\n```"
        case Notice():
            yield from (f"**{_plain(title)}**" for title in filter(None, [block.title]))
            yield from map(_line, (block.words, *block.more))
        case Folded():
            yield f"**{_summary(block.summary)}**"
            for inner in block.blocks:
                yield from _block(inner)
        case [Figure(), *_]:
            figures = (f"- **{_plain(one.name)}**: {_cells(one.value, named=one.name)}" for one in _figures(block))
            yield "\n".join(figures)


def _figures(block: Block) -> Sequence[Figure]:
    return [one for one in block if isinstance(one, Figure)]  # type: ignore[union-attr]  # a sequence of figures


def _table(table: Table) -> Iterator[str]:
    shown = table.written_columns
    by_ends = {at: has_wide_interval(cell for row in table.rows for cell in every(row[at])) for at, _ in shown}
    yield f"| {' | '.join(_plain(' '.join(with_group(one).split())) for _, one in shown)} |"
    yield f"| {' | '.join('--:' if one.is_number else '---' for _, one in shown)} |"
    for row in table.rows:
        texts = (
            _cells(row[at], by_ends=by_ends[at], scale=one.scale, named=f"{one.name} {table.source or ''}")
            for at, one in shown
        )
        yield f"| {' | '.join(texts)} |"


def _cells(cells: Cells, *, by_ends: bool | None = None, scale: Scale | None = None, named: str = "") -> str:
    those = cells if isinstance(cells, tuple) else (cells,)
    return " · ".join(_plain(text_of(one, by_ends=by_ends, scale=scale, named=named)) for one in those)


def _summary(cells: Cells) -> str:
    return _plain(line_of(cells if isinstance(cells, tuple) else (cells,)))


def _line(cells: Cells) -> str:
    return _plain(
        sentence(cells) if isinstance(cells, str) else line_of(cells if isinstance(cells, tuple) else (cells,))
    )


def _plain(text: str) -> str:
    marked = _MARKS.sub(r"\\\1", " ".join(text.split()))
    return _REFERENCES.sub(r"\1&#8203;", marked)  # a space without width prevents the link
