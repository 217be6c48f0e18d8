"""What words for selective recomputation mean."""

from __future__ import annotations

import pytest

from autotuner.core.codec import from_plain, to_plain
from autotuner.core.recompute import LayerPart, RecomputePolicy, recomputed
from autotuner.core.stack import Stack

MODULES = ("core_attn", "layernorm", "mlp", "mla_up_proj", "moe_act", "moe", "shared_experts")
"""Megatron-LM's ``--recompute-modules`` (core 0.13)."""


@pytest.mark.parametrize("word", MODULES)
def test_modules_of_megatron_keep_nothing_that_a_plain_backward_pass_does_not_read(word: str) -> None:
    policy = recomputed((RecomputePolicy(word),))
    assert policy.repeats
    assert not policy.keeps


def test_words_hold_together() -> None:
    mlp, core, both = (
        recomputed(tuple(map(RecomputePolicy, words))) for words in (("mlp",), ("core_attn",), ("mlp", "core_attn"))
    )
    assert both.repeats == mlp.repeats | core.repeats
    assert both.drops == mlp.drops | core.drops


def test_every_other_product_is_every_second_in_the_order_of_calls() -> None:
    in_order = [
        LayerPart.QUERY,
        LayerPart.KEY,
        LayerPart.VALUE,
        LayerPart.ATTENTION_OUTPUT,
        LayerPart.MLP_GATE,
        LayerPart.MLP_UP,
        LayerPart.MLP_DOWN,
    ]
    repeats = recomputed((RecomputePolicy.EVERY_OTHER_PRODUCT,)).repeats
    assert [part in repeats for part in in_order] == [False, True, False, True, False, True, False]


@pytest.mark.parametrize("policy", RecomputePolicy)
def test_nothing_is_both_kept_and_dropped(policy: RecomputePolicy) -> None:
    meaning = recomputed((policy,))
    assert not meaning.keeps & meaning.drops


def test_a_stack_is_written_and_read_with_its_words() -> None:
    stack = Stack(selective_recompute=(RecomputePolicy.MLP, RecomputePolicy.CORE_ATTN))
    document = to_plain(stack)
    assert document["selective_recompute"] == ["mlp", "core_attn"]
    assert from_plain(Stack, document) == stack
