"""What of a prediction was compared with measured runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.software import EXPERTS, comparisons, load_stack
from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.evidence import LATENT, LINEAR, SUBJECTS, Familiarity, Subject, Where
from tests.builders import big_job

FITTED = replace(big_job(), stack=load_stack("nanotron"))


def on(job: Job, device: str) -> Job:
    return replace(job, cluster=replace(job.cluster, accelerator=load_accelerator(device)))


def names(layout: Layout) -> set[str]:
    """What a layout has."""
    return {subject.name for subject in SUBJECTS if subject.of(LayoutColumns.from_layouts([layout])).all()}


def test_no_two_subjects_have_one_name_or_word() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS)
    assert len({subject.word for subject in SUBJECTS}) == len(SUBJECTS)


def test_the_table_counts_by_the_words_of_layouts() -> None:
    words = {subject.word for subject in SUBJECTS} | {LATENT, LINEAR}
    assert all(set(entry.options) <= words for entry in comparisons().values())
    assert any("recompute-full" in entry.options for entry in comparisons().values())


def test_what_a_layout_has_is_named_after_its_options() -> None:
    assert names(Layout()) == {"flash attention", "bf16"}
    pipeline = Layout(pipeline_parallel_degree=4, pipeline_schedule=PipelineSchedule.ZBV)
    assert names(pipeline) == {"flash attention", "bf16", "pipeline parallelism", "schedule zbv"}
    sharded = Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS)
    assert names(sharded) == {"flash attention", "bf16", "sharded parameters"}


def test_software_is_known_on_the_device_that_it_was_compared_on_alone() -> None:
    places = [Familiarity.of(on(FITTED, device)).base for device in ("h100-sxm", "a100-80gb", "mi300x")]
    assert places == [Where.HERE, Where.ELSEWHERE, Where.NOWHERE]
    assert Familiarity.of(big_job()).base == Where.ELSEWHERE  # PyTorch itself was measured by nobody


def test_a_device_that_a_user_describes_was_compared_by_nobody_whatever_it_is_called() -> None:
    faster = replace(FITTED.cluster.accelerator, bf16_flop_per_s=2e15)
    job = replace(FITTED, cluster=replace(FITTED.cluster, accelerator=faster))
    assert Familiarity.of(job).base == Where.NOWHERE


def test_cores_are_known_where_a_profile_measured_what_they_do_beside_the_work() -> None:
    core = load_accelerator("cpu")
    assert core.core is not None
    described = replace(core, fp32_flop_per_s=2e11)
    profiled = replace(described, core=replace(core.core, pointwise_bytes_per_s=1e9))
    bases = [
        Familiarity.of(replace(big_job(), cluster=replace(big_job().cluster, accelerator=one))).base
        for one in (core, described, profiled)
    ]
    assert bases == [Where.HERE, Where.NOWHERE, Where.HERE]


def test_the_most_known_place_counts() -> None:
    familiarity = Familiarity.of(FITTED)
    assert familiarity.of_option("tp") == Where.HERE
    assert familiarity.of_option("fused_softmax") == Where.ELSEWHERE
    assert familiarity.of_option("no-such-word") == Where.NOWHERE


def test_a_layout_is_validated_where_all_that_it_has_was_compared_here() -> None:
    layouts = [
        Layout(tensor_parallel_degree=8),
        Layout(context_parallel_degree=8),
        Layout(offload_activations=True, context_parallel_degree=8),
    ]
    compared = Familiarity.of(FITTED).compared(LayoutColumns.from_layouts(layouts))
    assert compared.validated.tolist() == [True, False, False]
    assert compared.never_in(0) == ()
    assert "activations offloaded" in compared.never_in(2)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_table_holds_no_more_runs_with_something_than_runs(subject: Subject) -> None:
    assert all(entry.options.get(subject.word, 0) <= entry.runs for entry in comparisons().values())


def test_every_entry_is_about_a_stack_and_a_device_of_the_catalog() -> None:
    for entry in comparisons().values():
        assert load_stack(entry.stack).name == entry.stack
        assert load_accelerator(entry.device).name == entry.device
        assert entry.model in {"dense models", EXPERTS}
