"""Jobs of every kind, unusual legal layouts of each, sweeps whose trials are made up, and short forms of numbers."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.blocks import LinearAttention, MixtureOfExperts
from autotuner.core.caveat import Caveat
from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.field_change import FieldChange
from autotuner.core.job import Calibration, Job, JobPhase, PartFactor
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.lines import read_lengths
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Measurement, PhaseTimes, ResourceCost, RobustMeasurement
from autotuner.core.model import TransformerSpec
from autotuner.core.network import Port, Wiring
from autotuner.core.prediction import Memory, Prediction
from autotuner.core.profile import profiled
from autotuner.core.rules.legality import RULES
from autotuner.core.stack import Stack
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import FailureKind, ProxyTrial, Trial, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.value import divisors
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import step_times_under
from autotuner.launch.contract import Launcher
from autotuner.report.caveats import caveat_in_words
from autotuner.report.cluster import route_in_words
from autotuner.report.explanation import crossed_in_words, nccl_in_words, way_in_words
from autotuner.report.links import link_in_words
from autotuner.report.prediction import remedies_in_words
from autotuner.report.words import changes_in_words
from autotuner.search.explain.communication import CrossedLink, NcclWays, Route
from autotuner.search.explain.layers import LayerGain
from autotuner.search.explain.link_timelines import SlowHop
from autotuner.search.results.sweep_answer import Rival
from autotuner.search.space.moves import BatchWay
from autotuner.search.suggestions import RemedyKind
from autotuner.store.sql import Store, memory_store
from tests.builders import profile
from tests.clocks import ManualClock
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker

JOBS: Mapping[str, tuple[str, str, int, int, str]] = {
    "dense": ("llama-3-70b", "h100:64", 8192, 512, "torch"),
    "dense, learned positions": ("gpt-3-175b", "a100-80gb:128", 2048, 1536, "megatron"),
    "dense, bf16 moments": ("llama-3.1-8b", "h200:32", 8192, 256, "torchtitan"),
    "experts": ("mixtral-8x22b", "h100:64", 4096, 512, "megatron-core"),
    "experts, latent attention": ("deepseek-v3", "h800:128", 4096, 1024, "megatron-bridge"),
    "experts, linear attention": ("qwen3-30b-a3b", "b200:16", 8192, 128, "torch"),
    "experts, windows and sinks": ("gpt-oss-120b", "b300:32", 8192, 256, "torch"),
    "windows, domain of several nodes": ("gemma-3-27b", "gb200:64", 8192, 256, "nemo"),
    "lengths": ("llama-3-8b", "h100:16", 8192, 256, "torch"),
    "cores": ("llama-demo", "cpu:8", 256, 32, "torch"),
    "nodes of cores, lengths": ("llama-demo", "cpu:4x2", 256, 48, "torch"),
    "hashed routes": ("llama-3-70b", "h100:256@llama3-roce", 8192, 1024, "megatron-core"),
    "rails that add": ("llama-3-70b", "h100:64@dgx-superpod", 4096, 512, "torch"),
    "torus": ("llama-2-13b", "mi300x:64@torus-3d", 4096, 256, "maxtext"),
    "slow links": ("llama-3-8b", "h100:8x4", 8192, 256, "torch"),
    "thin network": ("qwen2.5-7b", "a100-40gb:4x4", 4096, 256, "torch"),
    "phase of long sequences": ("llama-3.1-8b", "h100:64", 8192, 512, "typical"),
    "calibrated": ("qwen3-14b", "h100:32", 4096, 256, "nanotron"),
    "PCIe": ("gpt2-xl", "v100:16", 1024, 512, "llm-foundry"),
    "proxy": ("deepseek-v2-lite", "h100:32", 4096, 256, "torch"),
    "optimizer on the host": ("llama-3-70b", "h100:32", 4096, 256, "megatron-core"),
}
"""Model, cluster, tokens of a sequence, sequences of a step and software; ``_CHANGES`` says what else a job has."""

SLOW_LINKS = (
    LinkHealth(ends=(0, 1), delay_s=0.03, jitter_s=0.002, source="measured today"),
    LinkHealth(ends=(2, 5), bandwidth_bytes_per_s=2.5e9),
    LinkHealth(ends=(3, 4), is_dead=True),
    LinkHealth(link_class="inter_node", delay_s=1e-4),
)

_LENGTHS = "1-512:40, 513-2048:35, 2049-4096:15, 8192:10"


def job_of(name: str) -> Job:
    """Return one of ``JOBS``."""
    model, cluster, seq_len, batch, stack = JOBS[name]
    workload = Workload(seq_len=seq_len, global_batch_size=batch)
    job = Job(model=load_model(model), cluster=load_cluster(cluster), workload=workload, stack=load_stack(stack))
    return _with_details(name, job)


def _with_details(name: str, job: Job) -> Job:
    """Return the job with what a name of the catalog cannot say."""
    model, cluster, workload = job.model, job.cluster, job.workload
    match name:
        case "dense, bf16 moments":
            return replace(job, workload=replace(workload, optimizer_state_precision="bf16"))
        case "experts, linear attention":
            linear = LinearAttention(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128)
            experts = MixtureOfExperts(
                num_experts=64,
                experts_per_token=6,
                expert_ffn_size=768,
                num_shared_experts=1,
                shared_expert_gate=True,
                num_dense_layers=2,
                capacity_factor=1.25,
                pads_to_capacity=True,
            )
            kinds = {"linear_attention": linear, "num_linear_layers": 36, "experts": experts}
            return replace(job, model=replace(model, attention_output_gate=True, **kinds))  # type: ignore[arg-type]
        case "lengths":
            return replace(job, workload=replace(workload, lengths=read_lengths(_LENGTHS)))
        case "cores":
            return replace(job, cluster=profiled(cluster, profile(measured_at=86_400.0)))
        case "nodes of cores, lengths":
            return replace(job, workload=replace(workload, lengths=read_lengths("16-64:3, 128:2, 256:1")))
        case "slow links":
            return replace(job, cluster=cluster.with_link_health(SLOW_LINKS))
        case "thin network":
            return replace(
                job, cluster=replace(cluster, inter_node_link=cluster.inter_node_link.with_bandwidth(1.25e8))
            )
        case "phase of long sequences":
            phase = JobPhase(
                name="long", token_share=0.1, seq_len=65_536, global_batch_size=64, bandwidth_bytes_per_s=2.5e10
            )
            return phase.job(job)
        case "calibrated":
            parts = (
                PartFactor(part="tensor_communication_s", factor=1.4, deviation=0.1),
                PartFactor(part="matrix_s", factor=0.9, deviation=0.05),
            )
            rows = ((1.0, 0.2, -0.1), (0.2, 1.0, 0.3), (-0.1, 0.3, 1.0))
            known = Calibration(factor=1.1, deviation=0.04, num_runs=9, parts=parts, correlations=rows)
            return replace(job, calibration=known)
        case "PCIe":
            ports = (Port(name="mlx5_0", nearest=(0, 1)), Port(name="mlx5_1", nearest=(6, 7), path="numa_node"))
            wiring = Wiring(
                name="pairs",
                nvlink_groups=((0, 1), (2, 3), (4, 5), (6, 7)),
                switches=((0, 1, 2, 3), (4, 5, 6, 7)),
                sockets=((0, 1, 2, 3), (4, 5, 6, 7)),
                ports=ports,
            )
            return replace(job, cluster=replace(cluster, wiring=wiring))
        case "proxy":
            small = ProxyTrial(
                layout=Layout(tensor_parallel_degree=8), num_layers=6, num_dense_layers=1, global_batch_size=64
            )
            return small.job(job, cluster)
    return job


# ---------------------------------------------------------------- layouts
_NUMBERS: Mapping[str, Sequence[int]] = {
    "first_stage_less_layers": (1, 2),
    "last_stage_less_layers": (1, 2),
    "recompute_every": (2, 3),
    "gradient_bucket_bytes": (2**20, 10**8, 2**33),
    "collective_channels": (4, 16),
    "extra_slack": (1, 3),
    "num_delegates": (2, 4),
    "stage_rotation": (1, 2),
    "sync_sparsity": (1, 4, 64),
    "sync_chunk": (16, 128),
    "sync_top_k": (1, 16),
    "sync_period": (1, 3, 50),
    "sync_decay_permille": (0, 900),
    "num_dealing_ranks": (2, 4),
    "queue_pairs": (4, 8),
}
"""Numbers that options may have beside their default; degrees and what goes with them are drawn first."""

_SCHEDULES: Mapping[int, Sequence[PipelineSchedule]] = {
    1: (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE, PipelineSchedule.ZERO_BUBBLE),
    2: (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV),
    4: (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZERO_BUBBLE),
}
"""Those that begin a layout, by the stages of a rank."""

_SHARES = (0.05, 0.1, 0.3)
"""Share of the options that a layout chooses otherwise, where a rule allows it."""


@cache
def layouts_of(name: str, number: int = 100) -> Sequence[Layout]:
    """Return different legal layouts of a job, which its name, the options and the rules decide."""
    job, chance, found = job_of(name), random.Random(name), dict[str, Layout]()
    while len(found) < number:
        layout = _with_degrees(job, chance)
        if _is_legal(layout, job):
            layout = _with_choices(layout, job, chance)
            if name == "optimizer on the host":
                layout = replace(layout, optimizer_offload_percent=chance.choice((25, 50, 100)))
            found.setdefault(str(layout), layout)
    return tuple(found.values())


def _with_degrees(job: Job, chance: random.Random) -> Layout:
    """Return a layout of as many ranks as the job has."""
    ranks, degrees = job.cluster.world_size, list[int]()
    for most in (16, 16, 4, ranks):
        degrees.append(chance.choice([1, *(degree for degree in divisors(ranks) if degree <= most)]))
        ranks //= degrees[-1]
    tensor, pipeline, context, shard = degrees
    experts = job.model.experts.num_experts if job.model.experts else 1
    stages = chance.choice([1, 1, 2, 4]) if pipeline > 1 else 1
    return Layout(
        tensor_parallel_degree=tensor,
        pipeline_parallel_degree=pipeline,
        context_parallel_degree=context,
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=ranks,
        expert_parallel_degree=chance.choice([degree for degree in divisors(experts) if degree <= 64]),
        virtual_stages_per_rank=stages,
        pipeline_schedule=chance.choice(_SCHEDULES[stages] if pipeline > 1 else _SCHEDULES[1][:1]),
        micro_batch_size=chance.choice([1, 1, 2, 4]),
        shard_level=chance.choice(list(ShardLevel)[1:] if shard > 1 else [ShardLevel.NONE]),
        precision=chance.choice(job.cluster.accelerator.precisions),
        attention_kernel=chance.choice(job.cluster.accelerator.attention_kernels),
    )


def _with_choices(layout: Layout, job: Job, chance: random.Random) -> Layout:
    """Return the layout with other values of some options, each where the others allow it."""
    share = chance.choice(_SHARES)
    for name, one in OPTIONS.items():
        values = [*_NUMBERS.get(name, ()), *(value for value in one.values if value != one.default)]
        if job.cluster.accelerator.kind == "cpu" and name == "collective_algorithm":
            values = [value for value in values if str(value) != "tree"]  # which leaves cores
        is_detail = bool(one.qualifies) and getattr(layout, one.qualifies) != OPTIONS[one.qualifies].default
        if values and chance.random() < (0.7 if is_detail else share):
            changed = replace(layout, **{name: chance.choice(values)})  # type: ignore[arg-type]
            layout = changed if _is_legal(changed, job) else layout
    return layout


def _is_legal(layout: Layout, job: Job) -> bool:
    return not any(rule.broken(layout, job) for rule in RULES)


# ---------------------------------------------------------------- sweeps
Behaviour = Callable[[TrialSpec], Measurement | TrialFailure]
"""What comes of a trial."""


@dataclass(frozen=True, kw_only=True)
class EndedSweep:
    """A sweep after its worker has left it."""

    sweep: Sweep
    trials: Sequence[Trial]
    notes: Sequence[str]
    """What was noted on its trials while they ran, in order."""
    store: Store
    """Where it is stored."""


def run_sweep(
    request: SweepRequest,
    behaviour: Behaviour | None = None,
    *,
    launcher: Launcher | None = None,
    store: Store | None = None,
    at: float = 1000.0,
) -> EndedSweep:
    """Return a sweep after its last trial, of which each takes a minute.

    Args:
        request: What is asked.
        behaviour: What comes of its trials; None: ``outcome_of``.
        launcher: What else runs its trials.
        store: One that may know other sweeps.
        at: When it begins.
    """
    store, clock = store or memory_store(), ManualClock(at)

    def after_a_minute(spec: TrialSpec) -> Measurement | TrialFailure:
        clock.sleep(60.0)
        return (behaviour or outcome_of)(spec)

    sweep_id = store.create_sweep(request, now=clock.now())[0].id
    sweep_worker(store, launcher or FakeLauncher(after_a_minute), clock, owner="golden", lease_s=300.0).run_once()
    notes = [str(event.data["note"]) for event in store.events(sweep_id, limit=10_000) if event.kind == "trial.note"]
    return EndedSweep(
        sweep=store.get_sweep(sweep_id), trials=tuple(store.all_trials(sweep_id)), notes=notes, store=store
    )


def outcome_of(spec: TrialSpec, *, off_by: float = 0.1, excess: float = 0.001) -> Measurement | TrialFailure:
    """Return what is predicted of a trial, off by a little that its layout decides; too large a layout dies.

    Args:
        spec: The trial.
        off_by: Standard deviation of the logarithm of its step time over the predicted one.
        excess: What losses lie above the reference's, as a share, of layouts that are not numerically equivalent.
    """
    assert spec.cluster is not None
    job = Job(model=spec.model, cluster=spec.cluster, workload=spec.workload, stack=spec.stack or Stack())
    prediction, chance = predict_one(spec.layout, job), random.Random(f"{spec.layout} {spec.model.num_layers}")
    of_run = random.Random(f"{spec.layout} {spec.repeat} {spec.run}").gauss(0.0, 0.003)
    step_s = prediction.step_time.total_s * math.exp(chance.gauss(off_by / 2, off_by) + of_run)
    needed_bytes = prediction.memory.total_bytes * math.exp(chance.gauss(0.0, 0.08))
    limits = [limit for limit in (spec.memory_bytes, spec.settings.memory_budget_bytes) if limit is not None]
    if needed_bytes > min(limits, default=math.inf):
        return TrialFailure(kind=FailureKind.OOM, message="rank 1 ran out of memory", rank=1)
    num_steps = spec.settings.warmup_steps + spec.settings.measured_steps
    above = 1.0 + (0.0 if spec.layout.is_equivalent else excess) + 1e-4 * spec.seed
    sync_s, plain = 0.1 * step_s * chance.random(), plain_measurement(spec, step_time_s=step_s)
    return replace(
        plain,
        step_time_spread_s=0.01 * step_s,
        step_time_interval_s=0.004 * step_s,
        peak_bytes=(int(needed_bytes - prediction.memory.allowance_bytes),) * spec.layout.world_size,
        phases=PhaseTimes(forward_backward_s=0.9 * step_s - sync_s, gradient_sync_s=sync_s, optimizer_s=0.1 * step_s),
        losses=tuple(5.0 * above * math.exp(-step / 100) for step in range(num_steps)),
        robust=None if spec.fault_trace is None else _robust(spec, spec.fault_trace, job, plain),
    )


def _robust(spec: TrialSpec, trace: FaultTrace, job: Job, healthy: Measurement) -> RobustMeasurement:
    """Return what the trial reaches under its fault trace: as much longer than predicted as its healthy steps are."""
    slower = healthy.step_time_s / predict_one(spec.layout, job).step_time.total_s
    times_s = [slower * one for one in step_times_under(spec.layout, job, trace)]
    model_flop = healthy.model_flop_per_s * healthy.step_time_s
    tokens = spec.workload.tokens_per_step
    return RobustMeasurement.of(
        trace, times_s, model_flop=model_flop, peak_flop_per_s=healthy.peak_flop_per_s, tokens=tokens
    )


# ---------------------------------------------------------------- short forms
def abbreviate(value: Any) -> Any:
    """Return what JSON holds of a result: fields that say something, rows of equal things, layouts in words."""
    if (words := _words_of(value)) is not None:
        return words
    match value:
        case Prediction():
            known = (value.step_time.total_s, value.relative_error, value.memory.total_bytes, value.fit_probability)
            return [few_digits(float(number or 0.0)) for number in known]
        case Job() | TransformerSpec() | Cluster():
            return getattr(value, "name", "")
        case Memory():
            return [few_digits(value.total_bytes), value.worst_rank]
        case ResourceCost():
            power_w = value.power.total_w if value.power else None
            figures = (power_w, value.price_per_hour, value.co2_kg_per_hour, value.complexity, value.robustness)
            return [None if figure is None else few_digits(figure, 10) for figure in figures]
        case LayerGain() | Rival():
            return _short(value)
        case float():
            return few_digits(value, 10)
        case Mapping():
            return {str(key): abbreviate(one) for key, one in value.items()}
        case list() | tuple():
            return _rows([abbreviate(one) for one in value])
    if not is_dataclass(value):
        return value
    told = _told(value)
    if len(told) == 2:
        return [abbreviate(one) for one in told.values()]
    return {
        name: abbreviate(one)
        for name, one in told.items()
        if one is not None and one not in ((), "") and _SAID_TWICE.get(name) not in told
    }


def _told(value: Any) -> dict[str, Any]:
    told = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in _TYPED}
    return told | ({"sentence": _IN_WORDS[type(value)](value)} if type(value) in _IN_WORDS else {})


_IN_WORDS: Mapping[type[Any], Callable[[Any], str]] = {
    BatchWay: way_in_words,
    CrossedLink: crossed_in_words,
    NcclWays: nccl_in_words,
    Route: route_in_words,
    SlowHop: lambda hop: "; ".join(map(link_in_words, hop.links)),
}
"""What people read of a value, which is recorded beside it."""


def _short(value: LayerGain | Rival) -> list[Any]:
    if isinstance(value, LayerGain):
        gained = (few_digits(value.value, 10), few_digits(value.gain))
        return [value.label, value.num_layouts, *gained, changes_in_words(value.changes)]
    known = [value.role.value, value.rank, value.trial, str(value.layout), value.is_tie]
    figures = (value.gain, value.gain_error, value.probability_best)
    return [*known, *(few_digits(one, 10) for one in figures), *(f"{key} {one}" for key, one in value.lacks.items())]


def _words_of(value: Any) -> str | None:
    match value:
        case Layout() | Enum():
            return str(value)
        case Caveat():
            return caveat_in_words(value)
        case (FieldChange(), *_):
            return changes_in_words(value)
        case (RemedyKind(), *_):
            return remedies_in_words(value)
    return None


_TYPED = ("bands", "predicted_step")
"""Fields that are left out, as words or other fields tell as much."""


_SAID_TWICE = {"trial_id": "number", "layout": "label"}
"""Fields that are left out beside others which say as much."""


def _rows(plain: list[Any]) -> list[Any]:
    """Return objects as rows below their names; anything else as it is."""
    if len(plain) < 2 or not all(isinstance(one, dict) for one in plain):
        return plain
    names = list(dict.fromkeys(name for one in plain for name in one))
    return [names, *([one.get(name) for name in names] for one in plain)]


# ---------------------------------------------------------------- numbers
def few_digits(value: float, digits: int = 11) -> float:
    """Return the number with so many digits, a whole one without a point: files stay small."""
    if not math.isfinite(value):
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def column_sums(columns: Any, name: str = "") -> Iterator[tuple[str, list[float]]]:
    """Yield a name and six numbers of every column in a table of columns and tables.

    They are the length, how many values are finite, and of these the sum, the sum weighted by their places, the least
    and the greatest.
    """
    if is_dataclass(columns):
        for field in fields(columns):
            yield from column_sums(getattr(columns, field.name), f"{name}.{field.name}".lstrip("."))
    elif isinstance(columns, np.ndarray):
        numbers = [len(names) for names in columns] if columns.dtype == np.object_ else columns
        yield name, _sums(np.asarray(numbers, np.float64))


def _sums(column: npt.NDArray[np.float64]) -> list[float]:
    known = np.isfinite(column)
    places = (np.arange(len(column)) * 0.6180339887498949) % 1.0
    finite = column[known]
    ends = (finite.min(), finite.max()) if finite.size else (math.nan, math.nan)
    sums = (finite.sum(), (finite * places[known]).sum(), *ends)
    return [len(column), int(known.sum()), *(few_digits(float(value)) for value in sums)]


def file_name(name: str) -> str:
    """Return what the output of that name is called: ``lengths-on-cores``."""
    return name.replace(", ", "-").replace(" ", "-")


def hash_of(texts: Sequence[str]) -> str:
    """Return a hash of texts in their order."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
