"""The report of what predictions have learned about hardware and software from stored trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.report.parts import PART_WORDS
from autotuner.report.report import Cells, Code, Column, Moment, Quantity, Quiet, Report, Section, Table
from autotuner.report.words import counted, quantity
from autotuner.search.sampler.learnt_factors import LearntCalibration, LearntFactor

_MEANING = (
    "Corrections that predictions and the next sweeps learnt from the trials of earlier sweeps. A factor is the time "
    "of a step, or of a part of it, on this hardware, divided by the time predicted for typical hardware. It has an "
    "80 % interval."
)

_ERRORS = (
    "from the newest 1000 trials of each. “Error before”: median error of predictions for typical hardware. “Left "
    "out”: median error after learning, where each job is predicted from all other jobs only."
)


def calibrations_report(calibrations: Sequence[LearntCalibration], server: str = "") -> Report:
    """Return the report of calibrations: the factor between measured and predicted step times on each platform.

    A platform is an accelerator with its links and its software.

    Args:
        calibrations: The corrections that the stored trials of each platform give, in the order of the table.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
    """
    columns = (
        Column("accelerator", is_number=False),
        Column("links", is_number=False),
        Column("software", is_number=False),
        Column("trials"),
        Column("sweeps"),
        Column("a step takes"),
        Column("in addition, parts take", is_number=False, may_wrap=True),
        Column("error before"),
        Column("left out"),
        Column("newest", is_number=False),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of(one)) for one in calibrations],
        caption=f"{counted(len(calibrations), 'platform')}, by accelerator, {_ERRORS}",
        if_empty="No correction was learnt yet. Predictions are for typical hardware until a sweep has measured a "
        "trial:",
        name="Calibrations",
    )
    at = f" --server {server}" if server else ""
    first = f"autotuner sweep --model llama-demo --cluster local --seq-len 128 --global-batch-size 16 --trials 8{at}"
    section = Section(blocks=(table,) if calibrations else (table, Code(first)))
    return Report(headline="Calibrations", facts=(_MEANING,), sections=(section,))


def _cells_of(one: LearntCalibration) -> Iterator[Cells]:
    platform = one.platform
    yield platform.accelerator
    yield (platform.intra_node_link, platform.inter_node_link)
    yield (platform.stack, Quiet(f"trainer {platform.trainer}")) if platform.trainer else platform.stack
    yield Quantity(value=one.num_trials, unit="count")
    yield Quantity(value=one.num_sweeps, unit="count")
    yield None if one.whole_step is None else _factor(one.whole_step)
    differ = [(name, part) for name, part in one.parts.items() if part.differs]
    ordered = sorted(differ, key=lambda pair: -abs(pair[1].factor - 1))
    yield tuple(f"{PART_WORDS[name]} {quantity(_factor(part))}" for name, part in ordered) or Quiet("as the whole")
    yield Quantity(value=one.median_error, unit="share")
    yield Quantity(value=one.left_out_error, unit="share")
    yield Moment(one.last_finished_at)


def _factor(learnt: LearntFactor) -> Quantity:
    spread = 1 + learnt.relative_error
    return Quantity(
        value=learnt.factor,
        unit="×",
        low=learnt.factor / spread,
        high=learnt.factor * spread,
        source="estimated",
    )
