"""One row of a table of measured runs: what was run, and how long a step took."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from autotuner.backtest import words
from autotuner.backtest.sources import Source, source_of
from autotuner.backtest.words import UnusableRow
from autotuner.catalog.load import accelerator_facts, load_accelerator, load_cluster, load_link, load_stack
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.stages import V_SCHEDULES
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import PipelineSchedule, Recompute, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.errors import InvalidInput, NotFound

__all__ = ["REQUIRED_COLUMNS", "Run", "UnusableRow", "read_row"]

Row = Mapping[str, str]

REQUIRED_COLUMNS = ("model", "layers", "hidden", "heads", "seq_len", "gpu", "num_gpus", "micro_batch", "tp", "pp")

_GATED_FAMILIES = ("llama", "mistral", "qwen", "gemma", "deepseek")

_COUNT_TOLERANCE = 0.2
"""How far a stated parameter count may lie from that of the shapes: tables round, and some leave embeddings out."""

_USUAL_TOLERANCE = 0.12
"""The same, for the kind of block that width or family suggest: learned positions make up to a tenth of the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row that can be judged.

    Attributes:
        step_time_s: None if the run ran out of memory.
    """

    job: Job
    layout: Layout
    step_time_s: float | None


def read_row(row: Row) -> Run:
    """The run that the row describes.

    Raises:
        UnusableRow: Something is missing, contradicts itself, or cannot be expressed as a layout.
    """
    source = source_of(row.get("source", ""))
    try:
        cluster = _cluster(row, source)
        layout = _layout(row, source, cluster)
        workload = Workload(seq_len=_count(row, "seq_len"), global_batch_size=_global_batch(row, layout))
        job = Job(model=_model(row, source), cluster=cluster, workload=workload, stack=load_stack(source.stack))
    except (InvalidInput, NotFound) as error:
        raise UnusableRow(str(error)) from error
    if workload.global_batch_size % (layout.data_parallel_degree * layout.micro_batch_size):
        raise UnusableRow("the batch does not split into whole micro-batches")
    if not cluster.accelerator.peak_flop_per_s(layout.precision):
        raise UnusableRow(f"{cluster.accelerator.name} does not multiply in {layout.precision.label}")
    return Run(job=job, layout=layout, step_time_s=_step_time_s(row, source, job, layout))


# ---------------------------------------------------------------- step time
def _step_time_s(row: Row, source: Source, job: Job, layout: Layout) -> float | None:
    """Seconds; None if the run ran out of memory."""
    if _is_true(row.get("oom", "")):
        return None
    if row.get("status", "success") not in ("", "success"):
        raise UnusableRow(f"the run ended as {row['status']}")
    if row.get("notes", "").startswith("run failed"):
        raise UnusableRow(row["notes"])
    tokens, ranks = job.workload.tokens_per_step, job.cluster.world_size
    if row.get("step_time_s"):
        return _positive(row, "step_time_s")
    if row.get("tokens_per_s_per_gpu"):
        return tokens / (_positive(row, "tokens_per_s_per_gpu") * ranks)
    if row.get("tflops_per_gpu") and source.tflops:
        flop = tokens * _flop_per_token(job, recomputed=source.tflops == "hardware", layout=layout)
        return flop / (_positive(row, "tflops_per_gpu") * 1e12 * ranks)
    raise UnusableRow("no step time, no tokens per second")


def _flop_per_token(job: Job, layout: Layout, *, recomputed: bool) -> float:
    """FLOP behind a stated TFLOP/s: the model's, and where they count, one more forward of the layers."""
    model, seq_len = job.model, job.workload.seq_len
    flop = model.model_flop_per_token(seq_len)
    if recomputed and layout.recompute == Recompute.FULL:
        flop += 2 * model.num_active_layer_matrix_parameters + model.attention_flop_per_token(seq_len)
    return flop


# ---------------------------------------------------------------- model
def _model(row: Row, source: Source) -> TransformerSpec:
    """The shapes; whether the feed-forward block is gated and the embeddings tied is told by the parameter count."""
    hidden, heads = _count(row, "hidden"), _count(row, "heads")
    if row.get("head_dim"):
        head_dim = _count(row, "head_dim")
    elif hidden % heads:
        raise UnusableRow(f"{heads} heads do not split a hidden size of {hidden}, and head_dim is not given")
    else:
        head_dim = hidden // heads
    spec = TransformerSpec(
        name=row["model"],
        num_layers=_count(row, "layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_count(row, "kv_heads", heads),
        head_dim=head_dim,
        ffn_size=_count(row, "ffn", 4 * hidden),
        vocab_size=_count(row, "vocab", source.vocab),
    )
    return _with_stated_size(spec, row)


def _with_stated_size(spec: TransformerSpec, row: Row) -> TransformerSpec:
    # SwiGLU blocks are usually narrower, to weigh the same
    seems_gated = spec.ffn_size < 3.9 * spec.hidden_size or any(f in spec.name.lower() for f in _GATED_FAMILIES)
    variants = [
        replace(spec, gated_mlp=gated, tied_embeddings=tied, norm="rmsnorm" if gated else "layernorm")
        for gated, tied in product((seems_gated, not seems_gated), (False, True))
    ]
    if not row.get("params_b"):
        return variants[0]
    stated = _positive(row, "params_b") * 1e9

    def distance(variant: TransformerSpec) -> float:
        counts = (variant.num_parameters, variant.num_layer_parameters)  # some tables leave embeddings out
        return min(abs(count / stated - 1) for count in counts)

    usual = min(variants[:2], key=distance)
    nearest = usual if distance(usual) <= _USUAL_TOLERANCE else min(variants, key=distance)
    if distance(nearest) > _COUNT_TOLERANCE:
        raise UnusableRow("the shapes do not give the stated number of parameters")
    return nearest


# ---------------------------------------------------------------- cluster
def _cluster(row: Row, source: Source) -> Cluster:
    accelerator, ranks = _accelerator(row["gpu"]), _count(row, "num_gpus")
    usual = source.accelerators_per_node or accelerator_facts(accelerator)["accelerators_per_node"].value
    per_node = _count(row, "gpus_per_node", usual)
    per_node = math.gcd(ranks, per_node) if ranks > per_node else ranks
    cluster = load_cluster(f"{accelerator}:{ranks // per_node}x{per_node}")
    network = row.get("inter_node_link") or source.inter_node_link
    link = load_link(network) if network else cluster.inter_node_link
    if source.congestion is not None:
        link = replace(link, congestion=source.congestion)
    domain = _count(row, "nvlink_domain", cluster.nvlink_domain or per_node)
    return replace(
        cluster,
        inter_node_link=link,
        oversubscription=source.oversubscription,
        nvlink_domain=domain if domain > per_node else None,
    )


_DEVICES = (
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"b300", "b300"),
    (r"b200", "b200"),
    (r"gh200.*144|gh200.*hbm3e", "gh200-144gb"),
    (r"gh200", "gh200"),
    (r"h200", "h200"),
    (r"h800", "h800"),
    (r"h20", "h20"),
    (r"h100.*(nvl(?!ink)|94)", "h100-nvl"),
    (r"h100.*pci", "h100-pcie"),
    (r"h100.*(96|hbm2e|500 ?w)", "h100-96gb"),
    (r"h100.*64 ?g", "h100-64gb"),
    (r"h100", "h100-sxm"),
    (r"a800", "a800"),
    (r"a100.*40 ?g", "a100-40gb"),
    (r"a100.*64 ?g", "a100-64gb"),
    (r"a100", "a100-80gb"),
    (r"l40s", "l40s"),
    (r"v100", "v100"),
    (r"mi355", "mi355x"),
    (r"mi350", "mi350x"),
    (r"mi325", "mi325x"),
    (r"mi300", "mi300x"),
    (r"mi250", "mi250x"),
    (r"4090", "rtx-4090"),
    (r"5090", "rtx-5090"),
    (r"pro ?6000", "rtx-pro-6000"),
    (r"a10(g|$| )", "a10"),
)
"""What a table's name of a GPU holds, letters small and all between words a blank; the first that is found counts."""


def _accelerator(text: str) -> str:
    """The catalog's name for what a table calls a GPU: ``A100-SXM4-80GB``, ``H100-96GB-HBM2e-500W``."""
    name = text.lower().strip().strip("?")
    try:
        return load_accelerator(name).name
    except NotFound as unknown:
        words_of_it = re.sub(r"[^a-z0-9]+", " ", name)
        for pattern, accelerator in _DEVICES:
            if re.search(pattern, words_of_it):
                return accelerator
        raise UnusableRow(f"no accelerator {text!r} in the catalog") from unknown


# ---------------------------------------------------------------- layout
def _layout(row: Row, source: Source, cluster: Cluster) -> Layout:
    tensor, pipeline = _count(row, "tp"), _count(row, "pp")
    context, expert = _count(row, "cp", 1), _count(row, "ep", 1)
    if expert > 1:
        raise UnusableRow("experts: the table has no column for their shapes")
    data, rest = divmod(cluster.world_size, tensor * pipeline * context)
    if rest or _count(row, "dp", data) not in (data, data * context):  # some count context ranks as replicas
        raise UnusableRow("the degrees do not multiply to the accelerators")
    level, in_node = words.shard_level(row.get("zero_or_fsdp") or source.sharding)
    in_node_ranks = max(1, cluster.accelerators_per_domain // (tensor * context))
    shards = 1 if level == ShardLevel.NONE else math.gcd(data, in_node_ranks) if in_node else data
    schedule, virtual = _schedule(row, pipeline)
    return Layout(
        data_parallel_replicate_degree=data // shards,
        data_parallel_shard_degree=shards,
        tensor_parallel_degree=tensor,
        context_parallel_degree=context,
        pipeline_parallel_degree=pipeline,
        virtual_stages_per_rank=virtual,
        pipeline_schedule=schedule,
        micro_batch_size=_count(row, "micro_batch"),
        shard_level=level if shards > 1 else ShardLevel.NONE,
        reshard_after_forward=shards > 1 and level == ShardLevel.PARAMETERS,
        sequence_parallel=tensor > 1 and _is_true(row.get("seq_parallel", ""), source.sequence_parallel),
        recompute=words.recompute(row.get("act_ckpt") or source.recompute),
        attention_kernel=words.attention_kernel(row.get("attention") or source.attention, source.flash),
        precision=words.precision(row.get("precision") or "bf16"),
        fused_norm="rms" in row.get("attention", "").lower() or not source.names_fused_norm,
    )


def _schedule(row: Row, pipeline: int) -> tuple[PipelineSchedule, int]:
    """The schedule and the stages per rank; a lone rank runs none, so it has that of an equal layout."""
    if pipeline == 1:
        return PipelineSchedule.ONE_F_ONE_B, 1
    virtual = _count(row, "vpp", 1)
    schedule = words.schedule(row.get("schedule", ""), virtual)
    return schedule, 2 if schedule in V_SCHEDULES else virtual


def _global_batch(row: Row, layout: Layout) -> int:
    if row.get("global_batch"):
        return _count(row, "global_batch")
    return _count(row, "grad_accum") * layout.micro_batch_size * layout.data_parallel_degree


# ---------------------------------------------------------------- cells
_MAX_COUNT = 10**9  # tokens of a step, and elements of a vocabulary, are fewer; more is a slip of the hand


def _is_true(text: str, blank: bool = False) -> bool:
    return text.strip().lower() in ("1", "1.0", "true", "yes", "on") if text.strip() else blank


def _count(row: Row, name: str, blank: int | None = None) -> int:
    if not row.get(name):
        if blank is None:
            raise UnusableRow(f"{name} is not given")
        return blank
    value = _number(row, name)
    if not (1 <= value <= _MAX_COUNT and value.is_integer()):
        raise UnusableRow(f"{name} is no count")
    return int(value)


def _positive(row: Row, name: str) -> float:
    value = _number(row, name)
    if value <= 0:
        raise UnusableRow(f"{name} is not above 0")
    return value


def _number(row: Row, name: str) -> float:
    try:
        value = float(row[name])
    except ValueError as error:
        raise UnusableRow(f"{name} is no number") from error
    if not math.isfinite(value):
        raise UnusableRow(f"{name} is no number")
    return value
