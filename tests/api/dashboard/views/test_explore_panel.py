from __future__ import annotations

from dataclasses import replace

from api.dashboard.views.explore_panel import Control, Panel
from autotuner.catalog.load import load_cluster, load_model
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.layout import OPTIONS
from autotuner.domain.layouts.words import layout_of
from autotuner.search.explain.what_if import what_if

JOB = Job(
    model=load_model("llama-3-70b"),
    cluster=load_cluster("h100:64"),
    workload=Workload(seq_len=8192, global_batch_size=1024),
)


def panel(words: str, job: Job = JOB) -> Panel:
    return Panel.of(what_if(layout_of(words), job), job)


def control(shown: Panel, field: str) -> Control:
    return next(one for one in (*shown.degrees, *shown.usual, *shown.rare) if one.field == field)


def test_every_option_of_a_layout_has_one_control() -> None:
    shown = panel("fsdp2 tp8 pp4 v2 interleaved_1f1b mb1 recompute-full flash bf16")
    fields = [one.field for one in (*shown.degrees, *shown.usual, *shown.rare)]
    assert len(fields) == len(set(fields))
    assert set(fields) == OPTIONS.keys() - {
        "data_parallel_replicate_degree",  # what the other degrees leave
        "expert_parallel_degree",  # of a dense model
        "data_parallel_shard_degree",  # of two ranks
    }


def test_expert_ranks_are_asked_about_where_there_are_experts() -> None:
    assert [one.letters for one in panel("fsdp64 mb1").degrees] == ["tp", "pp", "cp"]
    sparse = replace(JOB, model=load_model("mixtral-8x7b"))
    assert [one.letters for one in panel("fsdp64 ep8 mb1", sparse).degrees] == ["tp", "pp", "cp", "ep"]


def test_the_degrees_are_a_product_of_the_ranks_there_are() -> None:
    shown = panel("tp8 pp4 1f1b mb1 flash bf16")
    assert (shown.product, shown.is_whole, shown.data) == ("8 × 4 × 2 × 1 = 64 ranks", True, 2)
    assert not panel("tp8 pp3 1f1b mb1 flash bf16").is_whole


def test_a_value_that_cannot_be_is_struck_with_the_words_of_the_rule() -> None:
    tensor = control(panel("tp8 pp4 1f1b mb1 flash bf16"), "tensor_parallel_degree")
    assert [value.text for value in tensor.values if not value.is_legal] == ["16"]
    assert tensor.notes == ("tp 16: 8 kv heads do not split over 16 tensor ranks",)


def test_a_control_that_says_nothing_tells_why_once() -> None:
    exchange = control(panel("tp8 pp4 1f1b mb1 flash bf16"), "context_exchange")
    assert exchange.notes == ("one context rank holds the whole sequence; there is nothing to exchange",)
    assert not exchange.says_something


def test_many_or_long_values_are_a_menu() -> None:
    shown = panel("tp8 pp4 1f1b mb1 flash bf16")
    assert control(shown, "pipeline_schedule").is_menu
    assert not control(shown, "tensor_parallel_degree").is_menu
    assert not control(shown, "recompute").is_menu


def test_sharding_over_all_ranks_is_sent_without_their_number() -> None:
    shards = control(panel("fsdp8 tp8 mb1 flash bf16"), "data_parallel_shard_degree")
    assert [(value.sent, value.text) for value in shards.values] == [("2", "2"), ("4", "4"), ("all", "all 8")]


def test_folded_choices_that_are_not_as_usual_are_said_above_the_fold() -> None:
    assert panel("fsdp64 mb1 flash bf16").unusual == ()
    assert panel("fsdp64 mb1 offload foreach flash bf16").unusual == ("optimizer kernel foreach", "offload on")
