"""Values of the core: their bounds, their words, and what importing them costs."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

import pytest

from autotuner.core import documents
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import Precision
from autotuner.core.codec import SCHEMA_VERSION, dumps, from_plain, loads, to_plain, without_defaults
from autotuner.core.errors import InvalidInput, LeaseLost, NotFound
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Measurement
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.study import OptimizerSpace, Range
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial_spec import OptimizerSettings, TrialSettings
from autotuner.core.units import GIB, GIGA, format_bytes, format_count, format_rate, format_seconds
from autotuner.core.value import (
    Count,
    CountFromZero,
    FromOne,
    NonNegative,
    Positive,
    PositiveShare,
    Share,
    divisors,
    nearest_divisor,
    value,
)
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import h100, h100_cluster, measurement, sweep_request, tiny_job, tiny_model
from tests.cases import each

# ---------------------------------------------------------------- value
T = TypeVar("T")


@value
class Thing:
    """A thing with a field of each kind."""

    count: Count = 1
    steps: CountFromZero = 0
    rate: Positive = 1.0
    delay_s: NonNegative = 0.0
    share: Share = 0.0
    part: PositiveShare = 1.0
    factor: FromOne = 1.0
    limit: Positive | None = None
    kind: Literal["cpu", "cuda"] = "cpu"


@value
class LimitedThing(Thing):
    """A thing with a rule of its own."""

    most: Count = 8

    def __post_init__(self) -> None:
        if self.count > self.most:
            raise InvalidInput("count", self.count, f"must not exceed {self.most}", self.most)


@value
class NamedThing(LimitedThing):
    """A thing that inherits the rule."""

    name: str = ""


@value
class Box(Generic[T]):
    """A box for anything."""

    content: T
    size: Count = 1


WRONG = [
    ("count", 0, "must be above 0", 1),
    ("count", -3, "must be above 0", 1),
    ("steps", -1, "must be 0 or more", 0),
    ("rate", 0.0, "must be above 0", None),
    ("delay_s", -0.5, "must be 0 or more", 0),
    ("share", -0.1, "must be from 0 to 1", 0.0),
    ("share", 1.1, "must be from 0 to 1", 1.0),
    ("part", 0.0, "must be above 0", None),
    ("part", 1.1, "must be from 0 to 1", 1.0),
    ("factor", 0.5, "must be 1.0 or more", 1.0),
    ("limit", 0.0, "must be above 0", None),
    ("kind", "cuba", "must be one of cpu, cuda", "cuda"),
]


@pytest.mark.parametrize(("field", "number", "rule", "nearest"), WRONG)
def test_a_number_out_of_its_bounds_is_refused_with_the_rule_and_the_nearest(
    field: str, number: Any, rule: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Thing(**{field: number})
    error = caught.value
    assert (error.field, error.value, error.rule, error.nearest) == (field, number, rule, nearest)


@pytest.mark.parametrize(("field", "number", "rule", "nearest"), WRONG)
def test_a_document_is_refused_in_the_words_of_the_constructor(
    field: str, number: Any, rule: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        documents.read(Thing, {field: number}, "thing")
    assert (caught.value.field, caught.value.rule, caught.value.nearest) == (f"thing.{field}", rule, nearest)


@pytest.mark.parametrize("field", ["rate", "delay_s", "share", "part", "factor", "limit"])
def test_a_number_that_is_not_a_number_keeps_no_bound(field: str) -> None:
    with pytest.raises(InvalidInput):
        replace(Thing(), **{field: cast("Any", math.nan)})


def test_an_unstated_field_has_no_bounds_and_a_changed_or_generic_value_is_checked() -> None:
    assert Thing(limit=None).limit is None
    with pytest.raises(InvalidInput):
        replace(Thing(), count=0)
    assert Box(content="x").size == 1
    with pytest.raises(InvalidInput):
        Box(content=1, size=0)


def test_a_value_is_frozen_slotted_and_pickles() -> None:
    with pytest.raises(FrozenInstanceError):
        Thing().count = 2  # type: ignore[misc]
    assert not hasattr(Thing(), "__dict__")
    assert pickle.loads(pickle.dumps(Thing(count=3))) == Thing(count=3)


@pytest.mark.parametrize("cls", [LimitedThing, NamedThing])
def test_a_derived_value_keeps_the_bounds_and_the_rules_that_it_inherits(cls: type[LimitedThing]) -> None:
    wrongs: list[dict[str, Any]] = [{"count": 0}, {"most": 0}, {"count": 9}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            cls(**wrong)
    assert cls(count=8).most == 8


@pytest.mark.parametrize(("number", "nearest"), [(3, 2), (5, 4), (7, 8), (100, 8)])
def test_the_nearest_divisor_is_the_smaller_one_on_a_tie(number: int, nearest: int) -> None:
    assert nearest_divisor(number, 8) == nearest
    assert divisors(8) == (1, 2, 4, 8)


def test_the_divisor_of_a_huge_number_is_found_without_a_search() -> None:
    assert nearest_divisor(6, 2**200) == 2


def test_documents_leave_out_defaults_take_words_for_integers_and_null_for_no_number() -> None:
    assert to_plain(Layout())["precision"] == "bf16"
    assert to_plain(SearchSpace(precision=(Precision.FP8,)))["precision"] == ["fp8"]
    assert from_plain(Layout, {"tensor_parallel_degree": 2}) == Layout(tensor_parallel_degree=2)
    assert from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 2}).step_time_s == 2.0
    text = dumps(replace(measurement(), losses=(math.nan, 1.0)))
    assert json.loads(text)["losses"] == [None, 1.0]
    assert math.isnan(loads(Measurement, text).losses[0])
    request = sweep_request(job=tiny_job(model=tiny_model(qk_norm=True)), seed=3)
    short = without_defaults(request)
    assert short["seed"] == 3
    assert short["job"]["model"]["qk_norm"] is True
    assert not {"name", "trainer", "challenge"} & short.keys()
    assert not {"norm", "experts"} & short["job"]["model"].keys()
    assert from_plain(SweepRequest, short) == request


@pytest.mark.parametrize(
    ("document", "field", "nearest"),
    [
        ({"seq_len": 1, "global_batch_size": 1, "seqlen": 2}, "seqlen", None),
        ({"seq_len": 1}, "global_batch_size", None),
        ({"seq_len": "1", "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": True, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 1.5, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 0, "global_batch_size": 1}, "seq_len", 1),
        ({"seq_len": 1, "global_batch_size": 1, "optimizer_state_precision": "fp8"}, "optimizer_state_precision", None),
    ],
)
def test_a_field_that_does_not_fit_is_named(document: dict[str, object], field: str, nearest: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_plain(Workload, document)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


def test_the_path_of_a_refusal_leads_through_objects_and_lists() -> None:
    document = to_plain(sweep_request())
    document["space"]["precision"] = ["bf16", "fp4"]
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert caught.value.field == "space.precision.1"
    document = to_plain(sweep_request())
    document["job"]["workload"]["seq_len"] = 0
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert (caught.value.field, caught.value.nearest) == ("job.workload.seq_len", 1)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "3"])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Workload"):
        loads(Workload, text)


def test_another_schema_version_and_numbers_that_no_computer_reckons_with_are_refused() -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION + 1, "seq_len": 1, "global_batch_size": 1})
    with pytest.raises(InvalidInput) as caught:
        loads(Workload, text)
    assert (caught.value.field, caught.value.nearest) == ("schema_version", SCHEMA_VERSION)
    with pytest.raises(InvalidInput, match=r"step_time_s.*is too large"):
        from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 10**400})
    with pytest.raises(InvalidInput, match="must be JSON"):
        loads(Layout, "[" * 5_000)


# ---------------------------------------------------------------- bounds
LENGTHS = LengthDistribution(lengths=(16, 64), weights=(3.0, 1.0))

experts = partial(MixtureOfExperts, num_experts=8, experts_per_token=2, expert_ffn_size=64)
workload = partial(Workload, seq_len=64, global_batch_size=8)


@each(
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
def test_an_illegal_value_is_refused_by_name_with_the_nearest_legal_one(
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
        (partial(OptimizerSpace, learning_rate=Range(low=0.0, high=0.1)), "learning_rate.low"),
    ],
)
def test_a_contradiction_is_refused_at_its_place(make: Callable[..., object], blamed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == blamed


# ---------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (81_234_000_000, "81.2 GB"), (1.5e12, "1.5 TB"), (-2e6, "-2 MB")],
)
def test_bytes_are_decimal_with_three_digits(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_a_gibibyte_is_more_than_a_gigabyte() -> None:
    assert format_bytes(GIB) == "1.07 GB"
    assert format_bytes(GIGA) == "1 GB"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (950, "950"), (124_439_808, "124M"), (46_702_792_704, "46.7B"), (1.04e12, "1.04T")]
)
def test_a_count_of_parameters_is_written_as_papers_do(count: float, text: str) -> None:
    assert format_count(count) == text


def test_a_rate_carries_its_unit() -> None:
    assert format_rate(312e12, "FLOP/s") == "312 TFLOP/s"
    assert format_rate(1.979e15, "FLOP/s") == "1.98 PFLOP/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (12.345, "12.3 s"),
        (8072.4, "8,072 s"),
        (0.9998, "1,000 ms"),
        (0.0123, "12.3 ms"),
        (4.2e-6, "4.2 µs"),
    ],
)
def test_seconds_change_to_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_invalid_input_names_field_value_rule_and_nearest_below_the_path_of_its_owner() -> None:
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1)
    assert str(error) == "num_nodes = 0: must be above 0; nearest legal value: 1"
    assert (error.field, error.value, error.rule, error.nearest) == ("num_nodes", 0, "must be above 0", 1)
    assert "nearest legal value: 0" in str(InvalidInput("latency_s", -1, "must be 0 or more", nearest=0))
    error = InvalidInput("num_nodes", 0, "must be above 0", nearest=1).under("job").under("request")
    assert error.field == "request.job.num_nodes"
    assert (error.value, error.rule, error.nearest) == (0, "must be above 0", 1)


def test_an_error_names_what_is_missing_or_lost() -> None:
    assert str(NotFound("model", "llama3", nearest="llama-3-8b")) == "no model 'llama3'; did you mean 'llama-3-8b'?"
    assert str(NotFound("sweep", "x")) == "no sweep 'x'"
    assert (
        str(LeaseLost("sweep-1", "worker-2"))
        == "worker 'worker-2' no longer holds the lease on 'sweep-1', because another worker has taken it over"
    )


def test_half_of_a_surrogate_pair_is_spelt_out_so_that_the_words_can_be_sent() -> None:
    error = InvalidInput("job.\ud800", "\udfff", "is not a field", nearest="x").under("request")
    assert error.field == "request.job.\\ud800"
    assert str(error).encode()


# ---------------------------------------------------------------- imports
@pytest.mark.parametrize("module", ["codec", "layout", "measurement", "trial_spec", "profile", "dry_run"])
def test_a_module_that_ranks_import_brings_neither_numpy_nor_pydantic(module: str) -> None:
    script = f"import sys, autotuner.core.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"numpy", "pydantic", "pydantic_core"}.isdisjoint(done.stdout.split())
