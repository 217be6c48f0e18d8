"""The report of support: how much of predictions is measured, borrowed or assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autotuner.catalog.kernels import BorrowedConstant
from autotuner.catalog.software import Compared
from autotuner.report.caveats import caveat_in_words
from autotuner.report.report import Block, Cells, Column, Lines, Link, Quantity, Report, Section, Table
from autotuner.report.words import sentence
from autotuner.search.support import PairSupport, Support, SupportDetails, SupportLevel

_LEVELS = (
    "A number counts the published runs of this stack on this accelerator that predictions were compared with.",
    "“borrowed”: predictions were compared only with runs of other stacks, of other models, or on other accelerators.",
    "“assumed”: predictions were compared with no run on this accelerator, or with no run of this kind of model.",
)

_ERROR = (
    "The median error is that of the step time with the constants of the catalog, which were fitted to these runs "
    "(not on CPU cores). `autotuner stacks` has the errors on sources that were left out of the fit."
)


def support_report(found: Support) -> Report:
    """Return the report of what is measured, borrowed and assumed, for one pair in detail or for a matrix of pairs."""
    sections = _of_pairs(found) if found.details is None else _of_pair(found, found.details)
    return Report(headline=_headline(found), sections=tuple(sections))


def _headline(found: Support) -> str:
    accelerators, stacks = ({getattr(one, name) for one in found.pairs} for name in ("accelerator", "stack"))
    words = ["Support of predictions"]
    words += [f"for {found.model}"] if found.model else []
    words += [f"on {name}" for name in accelerators if len(accelerators) == 1]
    words += [f"with {name}" for name in stacks if len(stacks) == 1]
    return " ".join(words)


# ------------------------------------------------------------------ many pairs
def _of_pairs(found: Support) -> Iterator[Section]:
    yield Section(title="Accelerators and software stacks", blocks=tuple(_matrix(found)))
    runs = (one for pair in found.pairs for one in pair.measured)
    yield Section(title="Measured", blocks=tuple(_measured(runs)))


def _matrix(found: Support) -> Iterator[Block]:
    """Yield a table of stacks by accelerators, without the accelerators on which nothing was measured."""
    pairs = found.pairs
    stacks, accelerators = (dict.fromkeys(getattr(one, name) for one in pairs) for name in ("stack", "accelerator"))
    known = {one.accelerator for one in pairs if one.level != SupportLevel.ASSUMED}
    shown = [name for name in accelerators if name in known or len(accelerators) == 1]
    cells = {(one.stack, one.accelerator): _cell(one, found.model) for one in pairs}
    columns = (Column("stack", is_number=False), *(Column(name, look="name") for name in shown))
    rows = [(stack, *(cells[stack, accelerator] for accelerator in shown)) for stack in stacks]
    yield Table(columns=columns, rows=rows, name="Measured runs by stack and accelerator", is_compact=True)
    if others := [name for name in accelerators if name not in shown]:
        yield Lines(items=(f"Assumed with every stack: {', '.join(others)}.",), is_list=False)
    more = "`autotuner support MODEL ACCELERATOR --stack STACK` shows one pair in detail."
    yield Lines(items=(*_LEVELS, more), is_quiet=True)


def _cell(one: PairSupport, model: str) -> Cells:
    """Return the number of runs, or the level, as a link to the page of the pair."""
    words = f"{sum(each.runs for each in one.measured):,}" if one.measured else one.level.value
    query = {"model": model} if model else {}
    return Link(words, "support", query=query | {"accelerator": one.accelerator, "stack": one.stack})


def _measured(runs: Iterable[Compared], if_empty: str = "Predictions were compared with no run.") -> Iterator[Block]:
    columns = (
        Column("accelerator", is_number=False),
        Column("stack", is_number=False),
        Column("models", is_number=False),
        Column("runs"),
        Column("median error"),
        Column("sources", is_number=False, may_wrap=True, is_minor=True),
    )
    rows = [_run_cells(one) for one in runs]
    yield Table(columns=columns, rows=rows, if_empty=if_empty)
    if rows:
        yield Lines(items=(_ERROR,), is_quiet=True)


def _run_cells(one: Compared) -> Sequence[Cells]:
    error = Quantity(value=one.median_error, unit="share")
    return one.device, one.stack, one.model, Quantity(value=one.runs, unit="count"), error, ", ".join(one.tables)


# ------------------------------------------------------------------ one pair
def _of_pair(found: Support, details: SupportDetails) -> Iterator[Section]:
    (pair,) = found.pairs
    yield Section(title="Measured", blocks=tuple(_measured_blocks(pair, details, has_model=bool(found.model))))
    yield Section(title="Borrowed", blocks=tuple(_borrowed_blocks(details)))
    yield Section(title="Assumed", blocks=tuple(_assumed_blocks(details)))


def _measured_blocks(pair: PairSupport, details: SupportDetails, *, has_model: bool) -> Iterator[Block]:
    software = details.software
    none = f"Predictions were compared with no run of {pair.stack} on {pair.accelerator}"
    yield from _measured(pair.measured, f"{none} for this kind of model." if has_model else f"{none}.")
    if software.left_out_error is not None:
        error = Quantity(value=software.left_out_error, unit="share")
        yield Lines(items=((f"All runs of {pair.stack}, each predicted without its source: median error", error),))
    lines = [f"Peak rates of {pair.accelerator}: {details.peak_source}."]
    versions = f", {software.versions}" if software.versions else ""
    lines += [f"Software: {software.framework}{versions}{f' ({software.date})' if software.date else ''}."]
    yield Lines(items=lines, is_quiet=True)


def _borrowed_blocks(details: SupportDetails) -> Iterator[Block]:
    if details.elsewhere:
        yield Lines(items=("The closest measured runs are:",), is_list=False)
        yield from _measured(details.elsewhere)
    lines = [*_constants(details.borrowed)]
    if details.borrowed_choices:
        lines.append(f"Compared only on other stacks or accelerators: {', '.join(details.borrowed_choices)}.")
    if lines or not details.elsewhere:
        yield Lines(items=lines or ["Nothing."])


def _assumed_blocks(details: SupportDetails) -> Iterator[Block]:
    lines = [*_constants(details.assumed), *(sentence(caveat_in_words(one)) for one in details.approximated)]
    if details.assumed_choices:
        lines.append(f"Compared with no measured run: {', '.join(details.assumed_choices)}.")
    yield Lines(items=lines or ["Nothing."])


def _constants(constants: Iterable[BorrowedConstant]) -> Iterator[str]:
    """Yield a statement for each origin, with the constants that come from it."""
    by_origin: dict[str, list[str]] = {}
    for one in constants:
        by_origin.setdefault(one.origin, []).append(one.constant)
    for origin, names in by_origin.items():
        yield sentence(f"{', '.join(names)}: {origin}")
