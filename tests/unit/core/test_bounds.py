"""Values that constructors refuse by rules of their own; ``test_value`` holds bounds that stand in types."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkHealth
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.study import OptimizerSpace, Range
from autotuner.core.trial_spec import OptimizerSettings, TrialSettings
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import h100, h100_cluster, tiny_model

LENGTHS = LengthDistribution(lengths=(16, 64), weights=(3.0, 1.0))

experts = partial(MixtureOfExperts, num_experts=8, experts_per_token=2, expert_ffn_size=64)
workload = partial(Workload, seq_len=64, global_batch_size=8)


@pytest.mark.parametrize(
    ("make", "field", "value", "nearest"),
    [
        (h100, "attention_kernels", (), None),
        (h100_cluster, "nvlink_domain", 4, 8),  # smaller than a node
        (LinkHealth, "ends", (2, 1), "[1, 2]"),
        (LinkHealth, "ends", (1, 1), "[1, 2]"),
        (LinkHealth, "link_class", "inter_nodes", "inter_node"),
        (partial(LinkHealth, ends=(0, 1)), "delay_s", float("inf"), None),
        (partial(LinkHealth, ends=(0, 1)), "jitter_s", float("inf"), None),
        (partial(LinkHealth, ends=(0, 1)), "bandwidth_bytes_per_s", float("inf"), None),
        (tiny_model, "num_kv_heads", 3, None),
        (tiny_model, "num_norms_per_layer", 1, None),  # parallel blocks alone share a norm
        (tiny_model, "qk_norm_of_all_heads", True, None),  # of heads that are not normed
        (tiny_model, "num_linear_layers", 1, None),  # without linear attention
        (tiny_model, "num_windowed_layers", 2, None),  # without a window
        (experts, "pads_to_capacity", True, None),  # of unlimited capacity
        (experts, "experts_per_token", 9, 8),
        (partial(workload, lengths=LENGTHS), "seq_len", 63, 64),
        (partial(workload, lengths=LENGTHS), "global_batch_size", 131_073, 131_072),
        (Stack, "logits_copies", float("nan"), 0),
        (TrialSettings, "proxy_layers_per_stage", (4,), None),
        (TrialSettings, "proxy_layers_per_stage", (4, 4), None),
        (TrialSettings, "proxy_layers_per_stage", (0, 2), None),
        (partial(OptimizerSettings, learning_rate=0.1), "beta1", 1.0, None),
        (partial(OptimizerSettings, learning_rate=0.1), "beta2", -0.1, None),
        (OptimizerSpace, "optimizers", (), None),
        (OptimizerSpace, "global_batch_sizes", (0,), None),
        (partial(Range, high=0.1), "low", -1.0, 0),
        (SearchSpace, "tensor_parallel_degree", (), None),
        (SearchSpace, "tensor_parallel_degree", (1, 1), None),
        (SearchSpace, "micro_batch_size", (0, 1), None),
        (SearchSpace, "precision", (), None),
        (SearchSpace, "precision", (Precision.BF16, Precision.BF16), None),
    ],
)
def test_what_cannot_be_is_refused_by_its_name_with_the_nearest_that_can(
    make: Callable[..., object], field: str, value: Any, nearest: Any
) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(**{field: value})
    assert caught.value.field == field
    assert nearest is None or caught.value.nearest == nearest


@pytest.mark.parametrize(
    ("make", "blamed"),
    [
        (LinkHealth, "link_health"),  # neither ends nor a class
        (partial(LinkHealth, ends=(0, 1), link_class="inter_node"), "link_health"),
        (partial(tiny_model, experts=experts(num_dense_layers=5)), "experts.num_dense_layers"),
        (partial(OptimizerSpace, beta2=Range(low=0.9, high=1.0)), "beta2.high"),
        (partial(OptimizerSpace, learning_rate=Range(low=0.0, high=0.1)), "low"),
    ],
)
def test_what_contradicts_itself_is_refused_where_it_does(make: Callable[..., object], blamed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == blamed
