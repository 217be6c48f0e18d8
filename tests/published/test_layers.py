"""Memory and times of a layer against published ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from autotuner.backtests.cells import Row, UnusableRow
from autotuner.backtests.measured_table import Run, read_row
from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import GIB
from autotuner.costmodel.layer.layer_time import layer_work
from autotuner.costmodel.memory.peak import MemoryColumns, memory
from tests.published.tables import rows


# ---------------------------------------------------------------- korthikanti
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published row and the layout it is about."""

    row: Row
    job: Job
    layout: Layout

    @property
    def columns(self) -> LayoutColumns:
        """The layout, as a single row."""
        return LayoutColumns.from_layouts([self.layout])

    @property
    def name(self) -> str:
        """For the test's identity."""
        return f"{self.row['model']}, {self.layout}"


def cases(table: str) -> Iterator[Case]:
    """The rows of a table with columns ``model``, ``seq_parallel`` and ``act_ckpt``."""
    for row in rows(table):
        run = _runs()[row["model"]]
        layout = replace(
            run.layout, sequence_parallel=row["seq_parallel"] == "1", recompute=Recompute.from_label(row["act_ckpt"])
        )
        yield Case(row=row, job=run.job, layout=layout)


@cache
def _runs() -> dict[str, Run]:
    """By model; of one model all have the same shapes, batch and degrees."""
    table = rows("megatron_lm_tables")
    return {row["model"]: read_row(row) for row in table if row["source"].startswith("arXiv:2205.05198 Table 5")}


# ---------------------------------------------------------------- activation memory
CASES = tuple(cases("megatron_activation_memory"))
SIZES = [case for case in CASES if case.row["activation_gib"]]
SHARES = [case for case in CASES if case.row["activation_pct_of_tp_baseline"]]
BASELINES = {case.job: case for case in SIZES if case.layout.recompute == Recompute.NONE}


def growth_bytes(case: Case, *parts: str) -> float:
    """What a rank holds more of if it gets its layers twice: of its layers all that is saved, no working memory."""
    doubled = replace(case.job, model=replace(case.job.model, num_layers=2 * case.job.model.num_layers))
    before, after = memory(case.columns, case.job), memory(case.columns, doubled)
    return float(sum(getattr(after, f"{part}_bytes")[0] - getattr(before, f"{part}_bytes")[0] for part in parts))


def published_bytes(case: Case) -> float:
    """Activations as the paper counts them: with dropout, without the sums of attention's rows that we count."""
    model, layout, workload = case.job.model, case.layout, case.job.workload
    activations_bytes = growth_bytes(case, "activations")
    if layout.recompute == Recompute.FULL:
        return activations_bytes
    tensor, p, v = layout.tensor_parallel_degree, layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
    interleaved = 1 + (p - 1) / (p * v) if v > 1 else 1  # section 4.2.3
    held = layout.micro_batch_size * workload.seq_len * model.num_layers * interleaved  # tokens times layers
    kept_scores = model.num_heads * workload.seq_len if layout.recompute == Recompute.NONE else 0
    hidden = model.hidden_size / (tensor if layout.sequence_parallel else 1)
    masks_bytes = dropout_bytes(hidden, scores=kept_scores / tensor)
    sums_bytes = 4 * model.num_heads / tensor
    return activations_bytes + held * (masks_bytes - sums_bytes)


def dropout_bytes(hidden: float, scores: float) -> float:
    """What dropout keeps of a token in a layer, by the hidden size and the scores of its queries."""
    return 2 * hidden + 3 * scores


@pytest.mark.parametrize("case", SIZES, ids=lambda case: case.name)
def test_activations_are_those_of_the_formula_and_a_parameter_takes_eighteen_bytes(case: Case) -> None:
    # arithmetic on both sides
    assert published_bytes(case) == pytest.approx(float(case.row["activation_gib"]) * GIB, rel=1e-9)
    published = float(case.row["params_optimizer_gib"]) * GIB
    # the paper counts 12 h^2 per layer and leaves norms and biases out, 13 parts in 12 h: 1.8e-4 of the narrowest
    assert growth_bytes(case, "parameters", "gradients", "optimizer") == pytest.approx(published, rel=1.8e-4)


@pytest.mark.parametrize("case", SHARES, ids=lambda case: case.name)
def test_each_technique_leaves_the_published_share_of_the_baseline(case: Case) -> None:
    percent = 100 * published_bytes(case) / published_bytes(BASELINES[case.job])
    # read off a plot: the formula that it plots is up to 0.14 points away as well
    assert percent == pytest.approx(float(case.row["activation_pct_of_tp_baseline"]), abs=0.15)


# ---------------------------------------------------------------- peaks recorded in runs
def recorded(table: str) -> Iterator[tuple[Row, Run]]:
    """Runs that ended, with a peak."""
    for row in rows(table):
        try:
            run = read_row(row)
        except UnusableRow:
            continue
        if row["memory_gb"] and run.step_time_s is not None:
            yield row, run


def peak(run: Run) -> MemoryColumns:
    return memory(LayoutColumns.from_layouts([run.layout]), run.job)


@cache
def pipelines() -> dict[tuple[int, int], tuple[float, Run]]:
    """The runs of GPT 1.5B under 1F1B: peak in GB, by sequences in a micro-batch and micro-batches."""
    return {
        (run.layout.micro_batch_size, run.job.workload.num_micro_batches(run.layout)): (float(row["memory_gb"]), run)
        for row, run in recorded("zero_bubble_pp_a100")
        if run.layout.pipeline_schedule == PipelineSchedule.ONE_F_ONE_B
    }


def held_gb(run: Run) -> float:
    """Predicted activations of a run on 8 A100 and what dropout adds, GB."""
    model, num_micro_batches = run.job.model, run.job.workload.num_micro_batches(run.layout)
    second = 1  # both ends have a layer less, so that the second stage is the fullest
    layers = 3 * min(num_micro_batches, run.layout.pipeline_parallel_degree - second)
    tokens = run.layout.micro_batch_size * run.job.workload.seq_len
    dropped = layers * tokens * dropout_bytes(model.hidden_size, model.num_heads * run.job.workload.seq_len)
    return (float(peak(run).activations_bytes[0]) + dropped) / 1e9


ROUNDING_GB = 1.0
"""Of a difference of peaks that were printed in whole GB."""


def test_more_micro_batches_in_flight_or_larger_ones_cost_what_the_pipeline_recorded() -> None:
    (four_gb, four), (seven_gb, seven) = pipelines()[6, 4], pipelines()[6, 24]
    assert held_gb(seven) - held_gb(four) == pytest.approx(seven_gb - four_gb, abs=ROUNDING_GB)
    (single_gb, single), (double_gb, double) = pipelines()[6, 24], pipelines()[12, 24]
    assert held_gb(double) - held_gb(single) == pytest.approx(double_gb - single_gb, abs=ROUNDING_GB)


def test_the_peaks_of_a_sweep_on_h100_are_met_in_the_median() -> None:
    runs = list(recorded("nanotron_ultrascale_sweep"))
    ratios = np.array([float(peak(run).total_bytes[0]) / 1e9 / float(row["memory_gb"]) for row, run in runs])
    # 13 % are measured, no constant having seen them. The source says neither whether GB means 10^9, nor of which rank,
    # nor whether libraries and context are in it, as in the prediction's allowance of 2 GB
    assert np.median(np.abs(ratios - 1)) < 0.2
    assert np.median(ratios) == pytest.approx(1.0, abs=0.15)


# ---------------------------------------------------------------- layer times
LAYER_TIMES_CASES = tuple(cases("korthikanti_layer_times"))
PLAIN = {case.layout: case for case in LAYER_TIMES_CASES if case.layout.recompute == Recompute.NONE}

FORWARD = 0.05
"""2.8 and 3.0 % are measured, 0.7 % of which may be rounding; the laws of the products alone are known to 2 %."""

BACKWARD = {False: 0.12, True: 0.03}
"""By sequence parallelism: 7.6 to 9.7 % and 0.7 to 0.8 % are measured, always too long.

Without sequence parallelism Megatron-LM reduces the gradient of an input while it multiplies for that of the weight;
no collective of a tensor group is hidden here. The 1.2 to 1.5 ms too much are less than the 1.8 ms of its two.
"""


def milliseconds(case: Case) -> tuple[float, float]:
    """Forward and backward as predicted for this cluster, whose steps are shorter than a typical one's."""
    work, calibration = layer_work(case.columns, case.job, sparse=False), case.job.calibration
    assert calibration is not None
    forward_s, total_s = calibration.factor * float(work.forward_s[0]), calibration.factor * float(work.total_s[0])
    return forward_s * 1e3, (total_s - forward_s) * 1e3


@pytest.mark.parametrize("case", LAYER_TIMES_CASES, ids=lambda case: case.name)
def test_a_layer_takes_the_published_time(case: Case) -> None:
    forward_ms, backward_ms = milliseconds(case)
    assert forward_ms == pytest.approx(float(case.row["forward_ms"]), rel=FORWARD)
    assert backward_ms == pytest.approx(float(case.row["backward_ms"]), rel=BACKWARD[case.layout.sequence_parallel])


@pytest.mark.parametrize("case", [c for c in LAYER_TIMES_CASES if c not in PLAIN.values()], ids=lambda case: case.name)
def test_recomputation_lengthens_the_backward_by_the_published_time(case: Case) -> None:
    plain = PLAIN[replace(case.layout, recompute=Recompute.NONE)]
    published_ms = float(case.row["backward_ms"]) - float(plain.row["backward_ms"])
    # what is done again is a forward, and known as well; both published times are rounded to 0.1 ms
    predicted_ms = milliseconds(case)[1] - milliseconds(plain)[1]
    assert predicted_ms == pytest.approx(published_ms, abs=0.1 + FORWARD * published_ms)
