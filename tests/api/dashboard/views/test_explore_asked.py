from __future__ import annotations

from api.dashboard.views.explore_asked import Asked
from api.dashboard.views.permalink import DEFAULT
from autotuner.domain.layouts.choice import Recompute, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.layouts.words import layout_of

PLAIN = Layout()


def test_nothing_asks_about_the_best_layout_of_the_default_job() -> None:
    asked = Asked.of({})
    assert (asked.link, asked.base, asked.errors) == (DEFAULT, None, {})
    assert asked.layout(layout_of("tp8 mb1 flash bf16")) == layout_of("tp8 mb1 flash bf16")


def test_single_inputs_say_more_than_the_words_beside_them() -> None:
    asked = Asked.of({"layout": "fsdp8 tp8 mb1 flash bf16", "recompute": "full", "sequence_parallel": "on"})
    layout = asked.layout(PLAIN)
    assert (layout.tensor_parallel_degree, layout.recompute, layout.sequence_parallel) == (8, Recompute.FULL, True)
    assert asked.is_form


def test_sharding_over_all_ranks_is_said_without_their_number() -> None:
    whole = Asked.of({"layout": "dp2 fsdp4 mb1", "data_parallel_shard_degree": "all"}).layout(PLAIN)
    assert whole.data_parallel_replicate_degree == 1
    groups = Asked.of({"layout": "fsdp8 mb1", "data_parallel_shard_degree": "4"}).layout(PLAIN)
    assert (groups.data_parallel_shard_degree, groups.shard_level) == (4, ShardLevel.PARAMETERS)
    assert groups.data_parallel_replicate_degree > 1


def test_an_accelerator_and_a_count_name_a_cluster() -> None:
    assert Asked.of({"accelerator": "h200", "count": "16"}).link.cluster == "h200:16"
    assert Asked.of({"accelerator": "my-cluster", "count": "16"}).link.cluster == "my-cluster"


def test_what_is_wrong_is_said_by_input_and_all_of_it() -> None:
    asked = Asked.of({"seq_len": "long", "micro_batch_size": "0", "recompute": "al", "layout": "tq8", "count": "x"})
    assert asked.errors.keys() == {"seq_len", "micro_batch_size", "recompute", "layout"}
    assert asked.errors["recompute"] == "must be one of none, selective, full"
    assert asked.texts["seq_len"] == "long"
    assert "tp8" in asked.errors["layout"]
