"""Compares published recipes with our predictions: ``python -m research.recipes`` writes docs/reference/recipes.md.

The page has the layouts that vendors publish, their predictions, and the first choice of the default space for the same
model, cluster, workload and software, in the number formats of the published run. Nobody ran that choice. The constants
are those of the catalog, whose fits used some of these rows. docs/reference/accuracy.md has the errors of constants
that were fitted without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotuner.backtests.measured_table import Sheet, read_table
from autotuner.core.choices import (
    FP8_PRECISIONS,
    Fp8Recipe,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.space import default_space
from autotuner.costmodel.predict import predict_one
from autotuner.report.words import likely
from autotuner.search.predicted_ranking import PredictedLayout, best_predicted

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "docs" / "reference" / "recipes.md"

TABLES = ("dgxc_benchmarking", "nemo_megatron_bridge_perf", "repo_reports_misc", "simumax_b200", "torchtitan")
"""Tables under tests/published with runs that vendors of hardware and software measured themselves."""

MODELS = ("llama-3", "llama-2", "gpt-3-175b", "nemotron-4-15b", "qwen3-30b", "gpt-oss", "mixtral", "grok")
"""Prefixes of the names of well-known models."""

ACCELERATORS = ("h100", "b200", "gb200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The fastest published run for one source, model, accelerator and number format, with predictions.

    "Fastest" means the most tokens per second and accelerator. The predictions are for the published layout, and for
    the layout that the autotuner would choose first.
    """

    source: str
    job: Job
    layout: Layout
    measured_s: float
    """Measured time of one step in seconds."""
    theirs: Prediction
    """Prediction of the published layout."""
    ours: PredictedLayout | None
    """Our first choice; None if no layout is predicted to fit."""

    @property
    def error(self) -> float:
        """Return the relative error of the predicted throughput of the published layout: predicted / measured - 1."""
        return self.measured_s / self.theirs.step_time.total_s - 1

    @property
    def gain(self) -> float | None:
        """Return how much faster the layout of our choice is predicted to be than the published one, as a fraction.

        It is None if no layout is predicted to fit in memory.
        """
        return None if self.ours is None else self.ours.prediction.tokens_per_s / self.theirs.tokens_per_s - 1

    def per_rank(self, tokens_per_s: float) -> float:
        """Convert tokens per second of the whole job into tokens per second of one accelerator."""
        return tokens_per_s / self.job.cluster.world_size


def recipes(tables: Iterable[str] = TABLES) -> Iterator[Recipe]:
    """Yield the fastest published run for each software, model, accelerator and number format, table by table.

    Only well-known models and a few accelerators are included.
    """
    for table in tables:
        best: dict[tuple[str, ...], tuple[Sheet, int]] = {}
        for sheet, row in _runs(table):
            key = _kind(sheet, sheet.layouts.row(row))
            if key not in best or _rate(sheet, row) > _rate(*best[key]):
                best[key] = sheet, row
        for sheet, row in best.values():
            yield _recipe(sheet, sheet.layouts.row(row), float(sheet.step_time_s[row]))


def _runs(table: str) -> Iterator[tuple[Sheet, int]]:
    """Yield the rows that ended, for the selected models and accelerators."""
    for sheet in read_table(ROOT / "tests" / "published" / f"{table}.csv").sheets:
        name = sheet.job.cluster.accelerator.name
        if sheet.job.model.name.startswith(MODELS) and name.startswith(ACCELERATORS):
            for row in np.flatnonzero(~sheet.out_of_memory).tolist():
                yield sheet, row


def _kind(sheet: Sheet, layout: Layout) -> tuple[str, ...]:
    return sheet.job.stack.name, sheet.job.model.name, sheet.job.cluster.accelerator.name, _format(layout)


def _rate(sheet: Sheet, row: int) -> float:
    """Return the tokens per second of one accelerator."""
    return sheet.job.workload.tokens_per_step / float(sheet.step_time_s[row]) / sheet.job.cluster.world_size


def _recipe(sheet: Sheet, layout: Layout, measured_s: float) -> Recipe:
    return Recipe(
        source=sheet.source,
        job=sheet.job,
        layout=layout,
        measured_s=measured_s,
        theirs=predict_one(layout, sheet.job),
        ours=_first_choice(sheet.job, layout),
    )


def _first_choice(job: Job, theirs: Layout) -> PredictedLayout | None:
    """Return our first choice, in the number formats of the published layout."""
    space = default_space(job).with_axes(
        precision=(theirs.precision,),
        fp8_recipe=(theirs.fp8_recipe,),
        fp32_gradient_reduce=(theirs.fp32_gradient_reduce,),
    )
    return next(iter(best_predicted(job, space, limit=1).rows), None)


# ---------------------------------------------------------------- recipes_page
_COLUMNS = ("model", "cluster", "tokens, batch", "software", "published layout", "measured", "predicted", "fits")
_OURS = ("ours", "predicted", "gain", "fits")


def recipes_page(found: Iterable[Recipe]) -> str:
    """Return the page with all published recipes and our predictions as Markdown.

    The rows are sorted by model, then accelerator, then number format.
    """
    rows = sorted(found, key=lambda one: (one.job.model.name, one.job.cluster.accelerator.name, _format(one.layout)))
    errors, gains = [abs(one.error) for one in rows], [one.gain for one in rows if one.gain is not None]
    num_large = sum(not one.theirs.fits for one in rows)
    num_equal = sum(one.ours is not None and one.ours.layout == one.layout for one in rows)
    figures = (
        f"On {len(rows)} published layouts the median error is {100 * np.median(errors):.1f} %, the 90th percentile "
        f"{100 * np.quantile(errors, 0.9):.0f} %;\n{num_large} of them are predicted not to fit. Our first choice is "
        f"predicted {100 * np.median(gains):.0f} % faster in the median ({_signed(min(gains))} to\n"
        f"{_signed(max(gains))}), and is the published layout {num_equal} times."
    )
    return f"""# Published recipes

The layouts that vendors publish, beside our predictions for them and our first choices.

*Generated by `python -m research.recipes`. Do not edit this page.*

The table has the fastest published run per accelerator of each software, model, accelerator and number format. Rates
are tokens per second of one accelerator. *Predicted* is our prediction for the published layout, with its error and the
probability that it fits. *Ours* is the first choice of the default space for the same model, cluster, batch, software
and number format, with its predicted gain. Nobody ran our choice. Where the published layout is not sure to fit, our
choice may be slower. The constants of the catalog were fitted to some of these runs: [accuracy](accuracy.md) has the
errors of constants that were not.

{figures}

{_table_row(*_COLUMNS, *_OURS)}{_table_row(*["---"] * len(_COLUMNS + _OURS))}{"".join(map(_recipe_line, rows))}"""


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _recipe_line(one: Recipe) -> str:
    workload, job = one.job.workload, one.job
    measured = one.per_rank(workload.tokens_per_step / one.measured_s)
    return _table_row(
        job.model.name,
        f"{job.cluster.accelerator.name}:{job.cluster.world_size}",
        f"{workload.seq_len:,}, {workload.global_batch_size:,}",
        job.stack.name,
        f"`{one.layout}`",
        f"{measured:,.0f}",
        f"{one.per_rank(one.theirs.tokens_per_s):,.0f} ({_signed(one.error)})",
        _fit(one.theirs),
        *_ours(one),
    )


def _ours(one: Recipe) -> tuple[str, str, str, str]:
    if one.ours is None or one.gain is None:
        return "nothing fits", "-", "-", "-"
    prediction = one.ours.prediction
    error = f" ± {100 * prediction.relative_error:.0f} %" if prediction.relative_error is not None else ""
    rate = f"{one.per_rank(prediction.tokens_per_s):,.0f}{error}"
    return f"`{one.ours.layout}`", rate, _signed(one.gain), _fit(prediction)


def _fit(prediction: Prediction) -> str:
    return "-" if prediction.fit_probability is None else likely(prediction.fit_probability)


def _signed(share: float) -> str:
    return f"{100 * share:+.0f} %".replace("-", "−")


def _format(layout: Layout) -> str:
    """Return the number format of the matrix products, and how fp8 is scaled."""
    is_scaled = layout.precision in FP8_PRECISIONS and layout.fp8_recipe != Fp8Recipe.TENSORWISE
    return f"{layout.precision} {layout.fp8_recipe}" if is_scaled else str(layout.precision)


def main() -> None:
    """Write ``docs/reference/recipes.md``, which compares published layouts with our predictions."""
    RECIPES.write_text(recipes_page(recipes()), encoding="utf-8")


if __name__ == "__main__":
    main()
