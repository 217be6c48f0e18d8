from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from autotuner.catalog.hardware import load_accelerator, load_cluster
from autotuner.catalog.software import EXPERTS, comparisons, load_stack
from autotuner.core.choices import Fp8Recipe, PipelineSchedule, Precision, ShardLevel
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Calibration, Job, PartFactor
from autotuner.core.layout import Layout
from autotuner.costmodel.calibration import MeasuredRuns, calibrated, calibrated_by_both
from autotuner.costmodel.evidence import LATENT, LINEAR, SUBJECTS, Evidence, Where
from autotuner.costmodel.predict import predict
from autotuner.costmodel.shared.low_precision import (
    gathers_parameters,
    is_narrow,
    saved_share,
    sent_share,
    weight_bytes,
)
from autotuner.costmodel.shared.table import columns_of, taken, write
from autotuner.costmodel.uncertainty import CLUSTER
from tests.builders import big_job, present
from tests.unit.costmodel.works import columns, first, with_stack

# ---------------------------------------------------------------- evidence
FITTED = replace(big_job(), stack=load_stack("nanotron"))


def on(job: Job, device: str) -> Job:
    return replace(job, cluster=replace(job.cluster, accelerator=load_accelerator(device)))


def names(layout: Layout) -> set[str]:
    """What a layout has."""
    return {subject.name for subject in SUBJECTS if subject.of(LayoutColumns.from_layouts([layout])).all()}


def test_subjects_have_names_and_words_that_the_table_counts_by_named_after_options() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert len({subject.word for subject in SUBJECTS}) == len(SUBJECTS)
    words = {subject.word for subject in SUBJECTS} | {LATENT, LINEAR}
    assert all(set(entry.options) <= words for entry in comparisons().values())
    assert any("recompute-full" in entry.options for entry in comparisons().values())
    assert names(Layout()) == {"flash attention", "bf16"}
    pipeline = Layout(pipeline_parallel_degree=4, pipeline_schedule=PipelineSchedule.ZBV)
    assert names(pipeline) == {"flash attention", "bf16", "pipeline parallelism", "schedule zbv"}
    sharded = Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS)
    assert names(sharded) == {"flash attention", "bf16", "sharded parameters"}
    for entry in comparisons().values():
        assert load_stack(entry.stack).name == entry.stack
        assert load_accelerator(entry.device).name == entry.device
        assert entry.model in {"dense models", EXPERTS}


def test_software_is_known_on_devices_that_it_was_compared_on_and_the_most_known_place_counts() -> None:
    places = [Evidence.of(on(FITTED, device)).base for device in ("h100-sxm", "a100-80gb", "mi300x")]
    assert places == [Where.HERE, Where.ELSEWHERE, Where.NOWHERE]
    assert Evidence.of(big_job()).base == Where.ELSEWHERE  # PyTorch itself was measured by nobody
    faster = replace(FITTED.cluster.accelerator, bf16_flop_per_s=2e15)
    job = replace(FITTED, cluster=replace(FITTED.cluster, accelerator=faster))
    assert Evidence.of(job).base == Where.NOWHERE
    evidence = Evidence.of(FITTED)
    assert evidence.of_option("tp") == Where.HERE
    assert evidence.of_option("fused_softmax") == Where.ELSEWHERE
    assert evidence.of_option("no-such-word") == Where.NOWHERE


def test_cores_are_known_where_a_profile_measured_what_they_do_beside_the_work() -> None:
    core = load_accelerator("cpu")
    described = replace(core, fp32_flop_per_s=2e11)
    profiled = replace(described, core=replace(present(core.core), pointwise_bytes_per_s=1e9))
    bases = [
        Evidence.of(replace(big_job(), cluster=replace(big_job().cluster, accelerator=one))).base
        for one in (core, described, profiled)
    ]
    assert bases == [Where.HERE, Where.NOWHERE, Where.HERE]


def test_a_layout_is_validated_where_all_that_it_has_was_compared_here() -> None:
    layouts = [
        Layout(tensor_parallel_degree=8),
        Layout(context_parallel_degree=8),
        Layout(offload_activations=True, context_parallel_degree=8),
    ]
    validated, never_compared = Evidence.of(FITTED).compared(LayoutColumns.from_layouts(layouts))
    assert validated.tolist() == [True, False, False]
    assert never_compared[0] == ()
    assert "activations offloaded" in never_compared[2]


# ---------------------------------------------------------------- What measured runs teach about a cluster
JOB = replace(big_job(), stack=load_stack("nemo"))
LAYOUTS = LayoutColumns.from_layouts(
    [Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, micro_batch_size=size) for size in (1, 2, 4, 8)]
)
SMALL = replace(JOB, model=replace(JOB.model, num_layers=8))
"""Another model on the same cluster."""


def runs(factor: float, count: int = 4, job: Job = JOB) -> MeasuredRuns:
    """So many layouts, each slower than predicted by the factor."""
    layouts = LAYOUTS.take(slice(count))
    return MeasuredRuns(job=job, layouts=layouts, step_time_s=factor * predict(layouts, job).step_time.total_s)


def known(job: Job) -> Calibration:
    return present(job.calibration)


def test_runs_move_the_factor_by_how_many_and_how_certain_they_are() -> None:
    assert calibrated(JOB, []) is JOB
    assert calibrated(JOB, [runs(2.0, 0)]) is JOB
    factors = [known(calibrated(JOB, [runs(1.3, count)])).factor for count in (1, 2, 3, 4)]
    assert factors == sorted(factors)
    assert 1.0 < factors[0] < factors[-1] < 1.3
    deviations = [CLUSTER, *(known(calibrated(JOB, [runs(1.0, count)])).deviation for count in (1, 2, 3, 4))]
    assert deviations == sorted(deviations, reverse=True)
    assert known(calibrated(JOB, [runs(1.0)])).factor == pytest.approx(1.0, abs=1e-12)  # rounding
    ours, theirs = known(calibrated(JOB, [runs(1.2)])), known(calibrated(JOB, [runs(1.2, job=SMALL)]))
    assert theirs.factor == pytest.approx(ours.factor, rel=0.02)  # their steps are made of other shares of parts
    one, two = (known(calibrated(JOB, [runs(math.e, count)])) for count in (1, 2))
    # each of these layouts tells as much: its step is made of nearly the same shares
    said = one.deviation**-2 - CLUSTER**-2
    assert math.log(one.factor) == pytest.approx(said * one.deviation**2, rel=1e-9)  # rounding
    assert two.deviation**-2 == pytest.approx(CLUSTER**-2 + 2 * said, rel=0.05)
    sure = replace(JOB, calibration=Calibration(factor=2.0, deviation=1e-6, num_runs=7))
    after = known(calibrated(sure, [runs(1.0)]))
    assert after.factor == pytest.approx(2.0, rel=1e-4)  # four runs against a certainty
    assert after.num_runs == 11
    slower = calibrated(JOB, [runs(1.25)])
    ratio = predict(LAYOUTS, slower).step_time.total_s / predict(LAYOUTS, JOB).step_time.total_s
    assert ratio == pytest.approx(np.full(4, known(slower).factor))  # rounding


def test_two_calibrations_are_one_of_all_their_runs_or_the_one_that_is_known() -> None:
    few, many = runs(1.4, 1), runs(1.2)
    one, other = known(calibrated(JOB, [few])), known(calibrated(JOB, [many]))
    both = known(calibrated_by_both(replace(JOB, calibration=one), other))
    together = known(calibrated(JOB, [few, many]))
    assert both.factor == pytest.approx(together.factor)
    assert both.deviation == pytest.approx(together.deviation)
    assert both.num_runs == together.num_runs == 5
    one = known(calibrated(JOB, [runs(1.2)]))
    assert calibrated_by_both(JOB, one).calibration == one
    assert calibrated_by_both(replace(JOB, calibration=one), None).calibration == one


def test_runs_of_the_whole_step_keep_what_trials_showed_of_the_parts() -> None:
    parts = (PartFactor(part="matrix_s", factor=1.2, deviation=0.05),)
    detailed = Calibration(
        factor=1.1, deviation=0.03, num_runs=4, num_trials=4, parts=parts, correlations=((1.0, 0.0), (0.0, 1.0))
    )
    sent = Calibration(factor=1.3, deviation=0.03, num_runs=2)
    for own, other in ((detailed, sent), (sent, detailed)):
        both = known(calibrated_by_both(replace(JOB, calibration=own), other))
        assert both.parts == parts
        assert 1.1 < both.factor < 1.3
        assert (both.num_runs, both.num_trials) == (6, 4)


# ---------------------------------------------------------------- What is kept and sent in 8 bits or fewer
DELAYED, BLOCKS = (Layout(precision=Precision.FP8, fp8_recipe=r) for r in (Fp8Recipe.DELAYED, Fp8Recipe.MXFP8))


def engine(name: str = "h100", **fields: bool) -> Job:
    """The big job with Transformer Engine, on that accelerator."""
    job = with_stack(None, fp8_implementation="transformer_engine", **fields)
    return replace(job, cluster=replace(job.cluster, accelerator=load_cluster(name).accelerator))


def test_saved_and_gathered_tensors_are_rounded_if_software_and_scales_allow_it() -> None:
    x = columns(Layout(), DELAYED)
    assert saved_share(x, engine()).tolist() == [1.0, 0.5]
    assert saved_share(x, big_job()).tolist() == [1.0, 1.0]
    precisions = (Precision.BF16, Precision.FP8_EMULATED, Precision.FP8, Precision.NVFP4)
    assert is_narrow(columns(*(Layout(precision=p) for p in precisions))).tolist() == [False, False, True, True]
    assert first(weight_bytes(columns(DELAYED), big_job())) == 2.0
    rows = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.ROWWISE)
    x = columns(Layout(), DELAYED, BLOCKS, rows)
    assert sent_share(x, engine(gathers_fp8_activations=True)).tolist() == [1.0, 0.5, 0.75, 1.0]
    assert sent_share(x, engine()).tolist() == [1.0, 1.0, 1.0, 1.0]
    x = columns(Layout(), DELAYED, BLOCKS)
    assert gathers_parameters(x, engine(gathers_fp8_parameters=True)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("accelerator", "layout", "gathers", "expected"),
    [
        ("h100", Layout(), False, 2.0),
        ("h100", DELAYED, False, 4.0),  # 16 bits, and both layouts
        ("h100", DELAYED, True, 2.0),  # both layouts alone
        ("b200", DELAYED, False, 3.0),  # one layout serves all products
        ("b200", DELAYED, True, 1.0),
        ("b200", BLOCKS, True, 4.0),  # rounded along both directions, and gathered in 16 bits
    ],
)
def test_a_weight_has_the_copies_products_read(
    accelerator: str, layout: Layout, gathers: bool, expected: float
) -> None:
    job = engine(accelerator, gathers_fp8_parameters=gathers)
    assert first(weight_bytes(columns(layout), job)) == expected


# ---------------------------------------------------------------- Tables of columns
@dataclass(frozen=True)
class Inner:
    seconds: Floats


@dataclass(frozen=True)
class Outer:
    inner: Inner
    counts: Integers
    shared: bool


def table(*counts: int) -> Outer:
    return Outer(inner=Inner(seconds=np.array(counts) / 2), counts=np.array(counts), shared=True)


def test_a_table_is_taken_written_and_listed_column_by_column() -> None:
    picked: Outer = taken(table(1, 2, 3), np.array([2, 0]))
    assert picked.counts.tolist() == [3, 1]
    assert picked.inner.seconds.tolist() == [1.5, 0.5]
    assert picked.shared is True
    longer = table(0, 0, 0, 0)
    write(table(5, 6), longer, slice(1, 3))
    assert longer.counts.tolist() == [0, 5, 6, 0]
    assert longer.inner.seconds.tolist() == [0.0, 2.5, 3.0, 0.0]
    assert [column.tolist() for column in columns_of(table(2, 4))] == [[1.0, 2.0], [2, 4]]
