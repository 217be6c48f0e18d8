from __future__ import annotations

from dataclasses import replace

import pytest

from api.dashboard.views.explore_results import Broken, Help, MemoryTable, Verdict
from api.dashboard.views.permalink import DEFAULT, Permalink
from autotuner.catalog.load import load_cluster, load_model
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.words import layout_of
from autotuner.search.explain.what_if import LegalLayout, what_if

JOB = Job(
    model=load_model("llama-3-70b"),
    cluster=load_cluster("h100:64"),
    workload=Workload(seq_len=8192, global_batch_size=1024),
)
FITTING = "fsdp64 mb1 reshard recompute-full flash bf16"
TOO_LARGE = "zero2 tp8 pp4 1f1b mb1 sp flash bf16"


def legal(words: str) -> LegalLayout:
    found = what_if(layout_of(words), JOB).legal
    assert found is not None
    return found


def test_a_verdict_says_whether_a_layout_fits_and_how_sure_that_is() -> None:
    verdict = Verdict.of(legal(FITTING).explanation.prediction, JOB)
    assert verdict.standing == "complete"
    assert verdict.fit.startswith("legal, fits ")
    assert verdict.limit == "85.5 GB"
    assert verdict.mfu_spread.startswith("± ")


def test_a_layout_that_is_too_large_is_told_by_how_much() -> None:
    verdict = Verdict.of(legal(TOO_LARGE).explanation.prediction, JOB)
    assert verdict.standing == "failed"
    assert verdict.fit.endswith(" GB too large")


def test_one_that_just_fits_is_no_good_news_yet() -> None:
    prediction = replace(legal(FITTING).explanation.prediction, fit_probability=0.6)
    assert Verdict.of(prediction, JOB).standing == "warned"


def test_a_wide_interval_is_told_by_its_ends() -> None:
    prediction = replace(legal(FITTING).explanation.prediction, relative_error=0.5)
    assert " to " in Verdict.of(prediction, JOB).mfu_spread


def test_the_columns_of_the_memory_sum_to_the_peaks() -> None:
    answer = legal(TOO_LARGE)
    table = MemoryTable.of(answer.explanation.stages, answer.explanation.layout, JOB)
    assert (table.unit, table.stages, table.num_stages) == ("GB", (0, 1, 2, 3), 4)
    for column, peak in enumerate(table.peaks):
        sizes = (row.sizes[column] for row in table.rows)
        assert sum(float(size) for size in sizes if size != "–") == pytest.approx(float(peak), rel=0.01)
    assert table.free.endswith("too large")


def test_of_many_stages_the_fullest_is_shown_in_any_case() -> None:
    answer = legal("tp1 pp32 dp2 1f1b mb1 recompute-full flash bf16")
    table = MemoryTable.of(answer.explanation.stages, answer.explanation.layout, JOB)
    assert len(table.stages) <= 8
    fullest = max(range(32), key=lambda rank: answer.explanation.stages[rank].total_bytes)
    assert {0, fullest, 31} <= set(table.stages)


def test_a_rank_that_holds_several_stages_is_called_one() -> None:
    answer = legal("tp8 pp4 v2 interleaved_1f1b mb1 flash bf16")
    assert MemoryTable.of(answer.explanation.stages, answer.explanation.layout, JOB).noun == "rank"


def test_what_would_help_leads_to_the_layout_with_it() -> None:
    answer = legal(TOO_LARGE)
    helps = Help.of_all(answer.explanation, DEFAULT)
    changes = (*answer.explanation.helpful, *answer.explanation.too_large)
    assert [Permalink.read(one.address).layout for one in helps] == [change.layout for change in changes]
    assert {one.chip for one in helps if "too large" in one.fit} == {"oom"}
    assert all("-" not in one.step for one in helps)


def test_a_broken_rule_leads_to_the_nearest_value_that_keeps_it() -> None:
    answer = what_if(layout_of("tp16 pp4 1f1b mb1 flash bf16"), JOB)
    broken = [Broken.of(reason, answer.layout, JOB, DEFAULT) for reason in answer.reasons]
    first = next(one for one in broken if "kv heads" in one.message)
    assert (first.subject, first.nearest) == ("tensor 16", "tensor 8")
    mended = Permalink.read(first.mended).layout
    assert mended is not None
    assert (mended.tensor_parallel_degree, mended.world_size) == (8, 64)
