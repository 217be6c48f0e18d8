"""Jobs and models, and names in their place."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core import documents
from autotuner.core.blocks import LinearAttention, MixtureOfExperts
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.codec import loads, to_plain
from autotuner.core.documents import Document, Named
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import Calibration, JobPhase, PartFactor, PhasedJob, SwitchCost, checkpoint_bytes
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.named import named_by, names_in, resolve
from autotuner.core.requests import PredictionRequest
from autotuner.core.stack import Stack
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.trial_spec import Trainer
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.door import MAX_WORLD_SIZE, Autotuner
from tests.builders import big_job, cpu_cluster, tiny_model

# ---------------------------------------------------------------- job
SLOW_PRODUCTS = Calibration(
    factor=1.1,
    deviation=0.02,
    num_runs=9,
    parts=(PartFactor(part="matrix_s", factor=1.2, deviation=0.05),),
    correlations=((1.0, -0.5), (-0.5, 1.0)),
)


def test_a_part_takes_its_own_factor_and_that_of_the_whole_also_where_it_was_stored_before_parts_were_known() -> None:
    assert SLOW_PRODUCTS.of("matrix_s") == pytest.approx(1.32)
    assert SLOW_PRODUCTS.of("optimizer_s") == 1.1
    old = '{"schema_version":1,"factor":1.1,"deviation":0.02,"num_runs":9}'
    assert loads(Calibration, old) == Calibration(factor=1.1, deviation=0.02, num_runs=9)
    with pytest.raises(InvalidInput, match="2 rows of 2 numbers"):
        Calibration(factor=1.1, deviation=0.02, num_runs=9, parts=SLOW_PRODUCTS.parts)


def phased(*phases: JobPhase, **changes: Any) -> PhasedJob:
    return PhasedJob(job=big_job(), num_tokens=1e9, phases=phases, **changes)


def test_a_phase_changes_what_it_names_and_leaves_the_rest_of_the_job() -> None:
    whole = big_job()
    dead = LinkHealth(link_class="inter_node", delay_s=0.01)
    phase = JobPhase(name="long", token_share=0.5, seq_len=4096, bandwidth_bytes_per_s=1e9, link_health=(dead,))
    there = phase.job(whole)
    assert there.workload == replace(whole.workload, seq_len=4096)
    assert there.cluster.inter_node_link.bandwidth_bytes_per_s == 1e9
    assert there.cluster.link_health == (dead,)
    assert there.model == whole.model
    assert JobPhase(name="main", token_share=0.5).job(whole) == whole


def test_steps_of_a_phase_are_its_tokens_over_those_of_its_step() -> None:
    half = JobPhase(name="half", token_share=0.5, global_batch_size=2 * big_job().workload.global_batch_size)
    training = phased(half, JobPhase(name="rest", token_share=0.5))
    assert training.num_steps(half) == 0.5e9 / (2 * big_job().workload.tokens_per_step)


def test_a_switch_writes_and_reads_the_masters_and_both_moments_and_what_is_not_said_is_as_published() -> None:
    whole = big_job()
    assert checkpoint_bytes(whole) == 12 * whole.model.num_parameters
    narrow = replace(whole, workload=replace(whole.workload, optimizer_state_precision="bf16"))
    assert checkpoint_bytes(narrow) == 8 * whole.model.num_parameters
    cost = SwitchCost(restart_s=10.0, storage_bytes_per_s=checkpoint_bytes(whole))
    assert cost.seconds(whole) == 12.0
    known = SwitchCost().known_for(big_job())
    assert known.storage_bytes_per_s == pytest.approx(big_job().cluster.world_size * 2e12 / 24_000)  # to the last digit
    assert known.restart_s == 30.0


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ((), "must be 1 to 32 phases"),
        ((JobPhase(name="a", token_share=0.5), JobPhase(name="a", token_share=0.5)), "a different name"),
        ((JobPhase(name="a", token_share=0.5), JobPhase(name="b", token_share=0.4)), "nearest legal value: 0.5"),
        ((JobPhase(name="a", token_share=1.0, link_health=(LinkHealth(ends=(0, 999)),)),), "phases.0.link_health"),
    ],
)
def test_phases_that_no_job_goes_through_are_refused_with_what_would_do(
    phases: tuple[JobPhase, ...], said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        phased(*phases)


def test_sequences_have_a_histogram_with_moments_and_quantiles() -> None:
    assert LengthDistribution.of([64, 16, 64]) == LengthDistribution(lengths=(16, 64), weights=(1.0, 2.0))
    lengths = LengthDistribution.of([16, 64, 64])
    assert (lengths.mean, lengths.moment(2)) == ((16 + 64 + 64) / 3, (16**2 + 64**2 + 64**2) / 3)
    lengths = LengthDistribution.of([16, 64, 64, 64])
    assert lengths.at_each([0.0, 0.24, 0.25, 0.99, 1.0]) == (16, 16, 64, 64, 64)
    assert lengths.at(0.24) == 16


@pytest.mark.parametrize(
    ("lengths", "weights"),
    [((), ()), ((0, 1), (1.0, 1.0)), ((2, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,)), ((1,), (float("inf"),))],
)
def test_a_text_that_is_not_a_distribution_is_refused(lengths: tuple[int, ...], weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput):
        LengthDistribution(lengths=lengths, weights=weights)


def test_micro_batches_are_per_replica_and_cover_accumulation() -> None:
    assert Workload(seq_len=4096, global_batch_size=512).tokens_per_step == 2_097_152
    layout = Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=4, micro_batch_size=2)
    assert Workload(seq_len=128, global_batch_size=64).num_micro_batches(layout) == 4


LENGTHS = LengthDistribution(lengths=(16, 64), weights=(3.0, 1.0))


def test_tokens_of_sequences_that_differ_are_those_of_an_average_step() -> None:
    workload = Workload(seq_len=128, global_batch_size=8, lengths=LENGTHS)
    assert workload.tokens_per_step == 8 * (3 * 16 + 64) // 4
    assert workload.keys_per_token == round((3 * 16**2 + 64**2) / (3 * 16 + 64))
    assert workload.of_longest == Workload(seq_len=128, global_batch_size=8)


# ---------------------------------------------------------------- model
PUBLISHED_COUNTS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED_COUNTS.items())
def test_parameter_counts_equal_the_published_checkpoints(name: str, count: int) -> None:
    assert load_model(name).num_parameters == count


def test_parameters_are_those_of_layers_tables_and_the_final_norm_with_tied_tables_once() -> None:
    spec = tiny_model()
    attention = 64 * (64 + 2 * 2 * 16) + 64 * 64
    mlp = 3 * 64 * 128
    assert spec.num_layer_parameters == 4 * (attention + mlp + 2 * 64)
    assert spec.num_parameters == spec.num_layer_parameters + 2 * 256 * 64 + 64
    untied, tied = tiny_model(), tiny_model(tied_embeddings=True)
    assert untied.num_parameters - tied.num_parameters == untied.embedding_parameters
    spec = tiny_model()
    assert spec.num_active_parameters == spec.num_parameters


def test_a_token_meets_its_own_experts_and_six_flop_per_element_and_attention() -> None:
    mixtral = load_model("mixtral-8x7b")
    assert mixtral.experts is not None
    idle = mixtral.num_layers * (8 - 2) * mixtral.expert_matrix_parameters
    everything = replace(mixtral.experts, experts_per_token=8)
    busy = replace(mixtral, experts=everything)
    assert busy.num_active_matrix_parameters - mixtral.num_active_matrix_parameters == idle
    spec, seq_len = tiny_model(num_kv_heads=4), 64
    matrices = spec.num_layers * (4 * 64 * 64 + 3 * 64 * 128) + 256 * 64
    assert spec.model_flop_per_token(seq_len) == 6 * matrices + 12 * spec.num_layers * 64 * seq_len
    assert tiny_model(num_kv_heads=1).attention_flop_per_token(64) == tiny_model().attention_flop_per_token(64)
    # a matrix of 16 x 8 per head is read twice and written once for each token: 6 FLOP an element
    linear = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=8)
    spec = tiny_model(linear_attention=linear, num_linear_layers=3)
    attending = 4 * 64 * 4 * 16  # one layer: scores and values
    assert spec.attention_flop_per_token(64) == attending + 3 * 6 * 4 * 16 * 8
    assert spec.attention_flop_per_token(128) - spec.attention_flop_per_token(64) == attending


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("llama-3-8b", 8.0), ("qwen3-30b-a3b", 3.3)],  # as their model cards say, in two digits
)
def test_active_parameters_are_those_of_the_model_card(name: str, billions: float) -> None:
    assert load_model(name).num_active_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("num_dense", "interval"), [(0, 1), (2, 1), (0, 2), (3, 2), (1, 3)])
def test_sparse_layers_are_as_many_as_say_so_one_by_one(num_dense: int, interval: int) -> None:
    experts = MixtureOfExperts(
        num_experts=4,
        experts_per_token=1,
        expert_ffn_size=8,
        num_dense_layers=num_dense,
        sparse_layer_interval=interval,
    )
    assert experts.num_sparse(7) == sum(experts.is_sparse(layer) for layer in range(7))


def test_a_model_with_other_layers_keeps_the_shares_of_each_kind() -> None:
    linear = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=8)
    spec = tiny_model(
        num_layers=12, attention_window=8, num_windowed_layers=3, linear_attention=linear, num_linear_layers=6
    ).with_num_layers(4)
    assert (spec.num_layers, spec.num_windowed_layers, spec.num_linear_layers) == (4, 1, 2)


# ---------------------------------------------------------------- named
THINGS: dict[Any, Any] = {
    TransformerSpec: tiny_model(),
    Cluster: cpu_cluster(),
    Stack: load_stack("torch"),
    Trainer: Trainer(name="ours", format=ExportFormat.ARGUMENTS),
}

REQUIRED: dict[str, Any] = {
    "workload": {"seq_len": 128, "global_batch_size": 8},
    "layout": {},
    "num_tokens": 1e9,
    "phases": [{"name": "all", "token_share": 1.0}],
    "goal": {"num_tokens": 1e9},
    "files": ["text"],
    "target_loss": 2.0,
    "name": "nightly",
    "cron": "0 3 * * *",
    "format": "torchtitan",
    "step_time_s": 1.0,
}


def marks(hint: Any) -> list[Any]:
    """Every ``Named`` in a type, however deep, as the type of what is named."""
    if (named := named_by(hint)) is not None:
        return [named]
    inside = [mark for inner in get_args(hint) for mark in marks(inner)]
    if isinstance(hint, type) and is_dataclass(hint):
        inside += [mark for inner in get_type_hints(hint, include_extras=True).values() for mark in marks(inner)]
    return inside


def written(hint: Any) -> Any:
    """A document of that type with a name in every ``Named`` field."""
    if named_by(hint) is not None:
        return "name"
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        required = {field.name for field in fields(hint) if field.default is field.default_factory is MISSING}
        own = {name: written(inner) for name, inner in hints.items() if marks(inner)}
        return {name: REQUIRED[name] for name in REQUIRED if name in hints and name in required | {"step_time_s"}} | own
    inner = next(each for each in get_args(hint) if marks(each))
    return [written(inner)] if hint.__origin__ is tuple else written(inner)


MODULES = (
    "autotuner.core.requests",
    "autotuner.core.sweep_requests",
    "autotuner.search.planning.request",
)
REQUESTS = [
    cls
    for name in MODULES
    for cls in vars(importlib.import_module(name)).values()
    if is_dataclass(cls) and getattr(cls, "__module__", "") == name and marks(cls)
]


@pytest.mark.parametrize("cls", REQUESTS)
def test_a_name_in_every_field_that_takes_one_is_resolved(cls: type[Any]) -> None:
    request = documents.read(cls, written(cls))
    assert sorted(map(str, marks(cls))) == sorted(str(kind) for kind, _ in names_in(request))
    assert names_in(resolve(request, lambda kind, given, _: THINGS[kind])) == ()


def test_requests_that_take_names_are_many() -> None:
    assert len(REQUESTS) >= 12


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample."""

    model: Named[TransformerSpec]


def test_a_name_may_stand_in_the_place_of_a_thing_and_of_the_fields_that_the_catalog_knows() -> None:
    assert documents.read(Sample, {"model": "llama"}).model == "llama"
    assert documents.read(Sample, {"model": to_plain(tiny_model())}).model == tiny_model()
    changed = documents.read(Sample, {"model": {"base": "llama-3-8b", "num_layers": 16}}).model
    assert isinstance(changed, TransformerSpec)
    assert changed.num_layers == 16
    name, thing = TypeAdapter(Document[Sample]).json_schema()["properties"]["model"]["oneOf"]
    assert name["type"] == "string"
    assert [each["title"] for each in thing["anyOf"] if "title" in each] == ["TransformerSpec in short"]


def test_an_error_in_a_nested_request_has_its_path() -> None:
    runs = [{"layout": {}, "step_time_s": 1.0, "cluster": f"h100:{2 * MAX_WORLD_SIZE}"}]
    body = written(PredictionRequest) | {"model": "llama-3-8b", "cluster": "h100:8", "measured": runs}
    with pytest.raises(InvalidInput) as refused:
        Autotuner().resolve(documents.read(PredictionRequest, body | {"stack": "torch"}))
    assert refused.value.field == "measured.0.cluster"


def test_the_door_brings_the_short_forms_of_the_catalog_and_no_exporter() -> None:
    script = (
        "import sys, autotuner.door; from autotuner.core import documents, requests; "
        "documents._validator(requests.PredictionRequest, is_own=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"autotuner.exports.formats", "fastapi", "sqlalchemy"}.isdisjoint(done.stdout.split())


def test_a_door_without_a_service_knows_no_trainer() -> None:
    body = written(SweepCreate) | {"model": "llama-3-8b", "cluster": "h100:8", "measured": [], "trainer": "x"}
    with pytest.raises(NotFound, match="trainer"):
        Autotuner().resolve(documents.read(SweepCreate, body | {"trial_cluster": None}))
