"""Runs every option, a covering set of their pairs and what the rules refuse; writes docs/compatibility.md.

``python -m tests.oracle.compatibility`` takes about twenty minutes on two cores. A refused layout is run all the same,
past the rules, so that the page shows what torch makes of it.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from autotuner.core.rules.trial import TRIAL_RULES
from tests.oracle.covering import Case, covering_set, job_of, one_by_one
from tests.oracle.refusals import witness
from tests.oracle.tolerance import TOLERANCES, agrees
from tests.oracle.training import Distance, Failed, Oracle
from tests.patience import COMPILING_PATIENCE_S
from tests.trials.zygote import Zygote

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A layout that was run, under the name of what it shows, and how it ended."""

    name: str
    case: Case
    ended: Distance | Failed

    @property
    def outcome(self) -> str:
        """``agrees``, ``differs`` or ``fails``."""
        if isinstance(self.ended, Failed):
            return "fails"
        return "agrees" if agrees(self.ended, self.case.layout.precision) else "differs"

    @property
    def evidence(self) -> str:
        """The distance from one process, or the error."""
        if isinstance(self.ended, Failed):
            return f"`{self.ended.message[:200].replace('|', '/')}`"
        return f"{self.ended.loss:.0e}, {self.ended.norm:.0e}, {self.ended.parameters:.0e}"


def main() -> None:
    """Run everything, print each line as it comes, write the page."""
    start_s = time.monotonic()
    zygote = Zygote(deadline_s=COMPILING_PATIENCE_S)
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(zygote, Path(folder))
        options = _run(oracle, ((case.values[0].label, case) for case in one_by_one()))
        pairs = _run(oracle, ((str(number), case) for number, case in enumerate(covering_set(), start=1)))
        refused = {rule.name: witness(rule) for rule in TRIAL_RULES}
        refusals = _run(oracle, ((name, case) for name, case in refused.items() if case is not None))
    zygote.close()
    sys.stdout.write(f"took {time.monotonic() - start_s:.0f} s\n")
    PAGE.write_text("\n".join(_page(options, pairs, refusals)) + "\n")


def _run(oracle: Oracle, cases: Iterable[tuple[str, Case]]) -> list[Row]:
    rows = []
    for name, case in cases:
        rows.append(Row(name=name, case=case, ended=oracle.distance(case)))
        sys.stdout.write(f"{rows[-1].outcome:8} {case}  {rows[-1].evidence}\n")
        sys.stdout.flush()
    return rows


def _page(options: list[Row], pairs: list[Row], refusals: list[Row]) -> Iterator[str]:
    yield "# What runs with what"
    yield ""
    yield "Written by `python -m tests.oracle.compatibility`; not to be edited."
    yield ""
    yield f"torch {torch.__version__}, gloo, Python {platform.python_version()}, up to 8 ranks, a decoder of 8 layers."
    yield "Each layout trains two steps from the same first values on the same sequences as one process that sees the"
    yield "whole batch at once. Evidence: the largest relative difference of a loss, that of the norm of the first"
    yield "gradient, and the largest distance of a parameter tensor relative to how far training moved it."
    yield ""
    yield "| precision | loss within | norm within | parameters within |"
    yield "| --- | --- | --- | --- |"
    yield from (
        f"| {name} | {most.loss:.0e} | {most.norm:.0e} | {most.parameters:.0e} |" for name, most in TOLERANCES.items()
    )
    yield ""
    yield "| what | layouts | outcome |"
    yield "| --- | --- | --- |"
    for title, rows in (
        ("options", options),
        ("pairs of options", pairs),
        ("refused by a rule, run past it", refusals),
    ):
        counts = Counter(row.outcome for row in rows)
        yield f"| {title} | {len(rows)} | {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))} |"
    yield ""
    yield "## Options, each with what it needs"
    yield ""
    yield from _table("option", options)
    yield ""
    yield "## Pairs of options"
    yield ""
    yield "Every two values of different options that a legal layout of at most 8 ranks can hold are trained together"
    yield "at least once."
    yield ""
    yield from _table("number", pairs)
    yield ""
    yield "## What the trial job refuses"
    yield ""
    yield "`fails` and `differs` are what torch makes of the layout when the rule is passed over."
    yield ""
    yield "| rule | outcome | layout | evidence |"
    yield "| --- | --- | --- | --- |"
    by_rule = {row.name: row for row in refusals}
    for rule in TRIAL_RULES:
        if row := by_rule.get(rule.name):
            yield f"| {rule.name}: {_reason(row)} | {row.outcome} | {row.case} | {row.evidence} |"
        else:
            yield f"| {rule.name} | not run | needs another model, device or software | |"


def _reason(row: Row) -> str:
    rule = next(rule for rule in TRIAL_RULES if rule.name == row.name)
    return rule.message(row.case.layout, job_of(row.case))


def _table(head: str, rows: list[Row]) -> Iterator[str]:
    yield f"| {head} | layout | outcome | evidence |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        yield f"| {row.name} | {row.case} | {row.outcome} | {row.evidence} |"


if __name__ == "__main__":
    main()
