"""Layout: how a model is split over ranks and run, every option of it, and its name in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from autotuner.core import check
from autotuner.core.choices import (
    NARROW_PRECISIONS,
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    ContextExchange,
    Fp8Recipe,
    GradientClip,
    GradientSync,
    OptimizerKernel,
    P2PTransport,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    RankOrder,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.option import CommunicationLayer, CostPart, Kind, Option, Topic, degree, option, options_of

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's ``bucket_cap_mb`` (PyTorch's documentation, 2.13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One complete choice of degrees, schedule, sharding, recomputation, kernels and precision.

    Ranks are numbered with the tensor axis innermost, then context, data shard, data replicate, and pipeline
    outermost (``rank_order`` swaps the last two), so tensor groups stay inside a node. A choice that means nothing
    beside the others (a schedule with one pipeline rank, a bucket size without replicas) stays at its default, so that
    equal runs are equal values.

    Attributes:
        first_stage_less_layers: Layers that the first stage has fewer than an even split gives it, for the embedding.
        last_stage_less_layers: Layers that the last stage has fewer, since it multiplies by the vocabulary.
        loss_parallel: Each tensor rank keeps its part of the logits; else all are gathered before the loss.
        async_tensor_parallel: Tensor collectives are cut up and run under the matrix products next to them.
        recompute_every: One layer in so many recomputes, the first of them and every n-th after it.
        gradient_bucket_bytes: Gradients that replicas reduce together.
        fp32_gradient_reduce: Replicas and shards sum gradients in fp32, whatever the precision.
        compiled: Every layer is compiled (``torch.compile``).
        offload_activations: What the backward pass needs waits in the host's memory.
        collective_channels: Blocks of a GPU that NCCL communicates with at once; 0: it chooses.
        pxn: What NCCL sends to another rail goes over NVLink to the accelerator of that rail first (PCI x NVLink).
        queue_pairs: Of InfiniBand, that NCCL splits the bytes of one connection over.
        extra_slack: Forwards that the adaptive schedule runs ahead per link, beyond those that it plans.
        num_delegates: Processes per neighbour and direction that send for a rank, where sends are delegated.
        stage_rotation: Pipeline rank i lies where rank i + so many of the pipeline would, around its end: of a ring of
            nodes it chooses the link that no stages talk over.
        gradient_sync: What replicas exchange (``data_parallel_replicate_degree``); shards in them reduce everything.
        sync_sparsity: Of so many momentum elements one is sent: the inverse of the papers' rate.
        sync_chunk: Momentum elements that are transformed together, into as many cosine components.
        sync_top_k: Components of a chunk that are sent.
        sync_period: Steps from one exchange of the parameters to the next.
        sync_sign: Parameters follow the sign of what was exchanged; else AdamW takes that for the gradient.
        sync_decay_permille: Of the momentum, per step.
        gradient_clip: Where a trial clips; nothing where it does not.
        num_dealing_ranks: Data-parallel ranks that deal their sequences among each other; 0: those of a node.
        sequence_packing: Sequences of a micro-batch follow each other in one row, and attend each to itself; else each
            is padded to the longest of its micro-batch.
    """

    data_parallel_replicate_degree: int = degree("replicate", "dp{}", enters=CostPart.STEP, searched=(1,))
    data_parallel_shard_degree: int = degree("shard", enters=CostPart.STEP)
    tensor_parallel_degree: int = degree("tensor", "tp{}", enters=CostPart.MATRIX_PRODUCTS)
    context_parallel_degree: int = degree("context", "cp{}", enters=CostPart.MATRIX_PRODUCTS, searched=(1,))
    expert_parallel_degree: int = degree("expert", "ep{}", enters=CostPart.MATRIX_PRODUCTS)
    pipeline_parallel_degree: int = degree("pipeline", "pp{}", enters=CostPart.RANK_STEP)
    virtual_stages_per_rank: int = option(
        1,
        Kind.COUNT,
        "stages per rank",
        "v{}",
        topic=Topic.DEGREES,
        enters=CostPart.RANK_STEP,
        searched=None,
        is_split=True,
    )
    micro_batch_size: int = option(
        1,
        Kind.COUNT,
        "micro-batch",
        "mb{}",
        "micro-batch {}",
        topic=Topic.BATCH,
        enters=CostPart.MATRIX_PRODUCTS,
        searched=None,
        is_split=True,
        always_said=True,
    )
    pipeline_schedule: PipelineSchedule = option(
        PipelineSchedule.ONE_F_ONE_B,
        Kind.CHOICE,
        "schedule",
        "{}",
        "schedule {}",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        searched=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B),
        is_split=True,
        said_beside="pipeline_parallel_degree",
    )
    sequence_parallel: bool = option(
        False,
        Kind.SWITCH,
        "sequence parallel",
        "sp",
        "sequence parallel",
        topic=Topic.TENSOR,
        enters=CostPart.MATRIX_PRODUCTS,
        searched=(False, True),
    )
    shard_level: ShardLevel = option(
        ShardLevel.NONE,
        Kind.CHOICE,
        "sharding",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        searched=(ShardLevel.NONE, ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
        qualifies="data_parallel_shard_degree",
    )
    reshard_after_forward: bool = option(
        False,
        Kind.SWITCH,
        "reshard after forward",
        "reshard",
        "reshard after forward",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        searched=(False, True),
    )
    recompute: Recompute = option(
        Recompute.NONE,
        Kind.CHOICE,
        "recompute",
        "recompute-{}",
        "recompute {}",
        topic=Topic.MEMORY,
        enters=CostPart.LAYER,
        searched=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
        plainest_first=tuple(reversed(Recompute)),  # less of it is what one hopes to afford
    )
    attention_kernel: AttentionKernel = option(
        AttentionKernel.FLASH,
        Kind.CHOICE,
        "attention",
        "{}",
        "{} attention",
        topic=Topic.ATTENTION,
        enters=CostPart.LAYER,
        always_said=True,
        plainest_first=(
            AttentionKernel.MATH,
            AttentionKernel.FUSED_SOFTMAX,
            AttentionKernel.EFFICIENT,
            AttentionKernel.FLASH_1,
            AttentionKernel.FLEX,
            AttentionKernel.FLASH,
            AttentionKernel.CUDNN,
            AttentionKernel.FLASH_3,
        ),
    )
    precision: Precision = option(
        Precision.BF16,
        Kind.CHOICE,
        "precision",
        "{}",
        "{}",
        topic=Topic.PRECISION,
        enters=CostPart.MATRIX_PRODUCTS,
        always_said=True,
        is_number_format=True,
        changes_mathematics=NARROW_PRECISIONS,
    )
    fused_norm: bool = option(
        True,
        Kind.SWITCH,
        "fused norm",
        "unfused-norm",
        "unfused norm",
        topic=Topic.IMPLEMENTATION,
        enters=CostPart.LAYER,
    )
    first_stage_less_layers: int = option(
        0,
        Kind.COUNT,
        "fewer layers on the first stage",
        "lessfirst{}",
        "{} layers fewer on the first stage",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        lowest=0,
        searched=None,
        is_split=True,
    )
    last_stage_less_layers: int = option(
        0,
        Kind.COUNT,
        "fewer layers on the last stage",
        "lesslast{}",
        "{} layers fewer on the last stage",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        lowest=0,
        searched=None,
        is_split=True,
    )
    loss_parallel: bool = option(
        True,
        Kind.SWITCH,
        "loss parallel",
        "gathered-logits",
        "gathered logits",
        topic=Topic.LOSS,
        enters=CostPart.LAYER,
    )
    async_tensor_parallel: bool = option(
        False,
        Kind.SWITCH,
        "async tensor parallel",
        "async-tp",
        "async tensor parallel",
        topic=Topic.TENSOR,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.TASKS,
    )
    context_exchange: ContextExchange = option(
        ContextExchange.RING,
        Kind.CHOICE,
        "context exchange",
        "cp-{}",
        "context by {}",
        topic=Topic.CONTEXT,
        enters=CostPart.LAYER,
    )
    recompute_every: int = option(
        1,
        Kind.COUNT,
        "recompute interval",
        "every{}",
        "every {} layers",
        topic=Topic.MEMORY,
        enters=CostPart.RANK_STEP,
        qualifies="recompute",
    )
    gradient_bucket_bytes: int = option(
        DEFAULT_BUCKET_BYTES,
        Kind.COUNT,
        "gradient bucket",
        "bucket{}",
        "buckets of {}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        unit="bytes",
        layer=CommunicationLayer.TASKS,
    )
    fp32_gradient_reduce: bool = option(
        False,
        Kind.SWITCH,
        "fp32 gradient reduce",
        "fp32-reduce",
        "gradients summed in fp32",
        topic=Topic.DATA,
        enters=CostPart.RANK_STEP,
        is_number_format=True,
    )
    fp8_recipe: Fp8Recipe = option(
        Fp8Recipe.TENSORWISE,
        Kind.CHOICE,
        "fp8 recipe",
        "{}",
        "{}",
        topic=Topic.PRECISION,
        enters=CostPart.MATRIX_PRODUCTS,
        qualifies="precision",
        is_number_format=True,
    )
    compiled: bool = option(
        False, Kind.SWITCH, "compiled", "compiled", "compiled", topic=Topic.IMPLEMENTATION, enters=CostPart.LAYER
    )
    optimizer_kernel: OptimizerKernel = option(
        OptimizerKernel.FUSED,
        Kind.CHOICE,
        "optimizer kernel",
        "{}",
        "{} optimizer",
        topic=Topic.IMPLEMENTATION,
        enters=CostPart.STEP,
    )
    offload_activations: bool = option(
        False,
        Kind.SWITCH,
        "activation offload",
        "offload",
        "activations offloaded",
        topic=Topic.MEMORY,
        enters=CostPart.LAYER,
    )
    collective_algorithm: CollectiveAlgorithm = option(
        CollectiveAlgorithm.AUTO,
        Kind.CHOICE,
        "collective algorithm",
        "algo-{}",
        "{} all-reduces",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.COLLECTIVES,
    )
    collective_protocol: CollectiveProtocol = option(
        CollectiveProtocol.AUTO,
        Kind.CHOICE,
        "collective protocol",
        "proto-{}",
        "{} protocol",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.COLLECTIVES,
    )
    collective_channels: int = option(
        0,
        Kind.COUNT,
        "collective channels",
        "channels{}",
        "{} channels",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        lowest=0,
        layer=CommunicationLayer.COLLECTIVES,
    )
    extra_slack: int = option(
        0,
        Kind.COUNT,
        "extra slack",
        "slack{}",
        "{} more forwards ahead",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        lowest=0,
        qualifies="pipeline_schedule",
        layer=CommunicationLayer.TASKS,
    )
    p2p_transport: P2PTransport = option(
        P2PTransport.INLINE,
        Kind.CHOICE,
        "sends between stages",
        "{}",
        "{} sends",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        layer=CommunicationLayer.TASKS,
    )
    num_delegates: int = option(
        1,
        Kind.COUNT,
        "delegates",
        "delegates{}",
        "{} delegates",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        qualifies="p2p_transport",
        layer=CommunicationLayer.TASKS,
    )
    rank_order: RankOrder = option(
        RankOrder.STAGES_OUTERMOST,
        Kind.CHOICE,
        "rank order",
        "{}",
        "{}",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        layer=CommunicationLayer.NETWORK,
    )
    stage_rotation: int = option(
        0,
        Kind.COUNT,
        "stage rotation",
        "rotate{}",
        "stages rotated by {}",
        topic=Topic.PIPELINE,
        enters=CostPart.RANK_STEP,
        lowest=0,
        layer=CommunicationLayer.NETWORK,
    )
    gradient_sync: GradientSync = option(
        GradientSync.FULL,
        Kind.CHOICE,
        "gradient exchange",
        "sync-{}",
        "{} exchange",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        changes_mathematics=tuple(GradientSync)[1:],
    )
    sync_sparsity: int = option(
        16,
        Kind.COUNT,
        "elements per sent element",
        "sparsity{}",
        "one of {} sent",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
    )
    sync_chunk: int = option(
        64,
        Kind.COUNT,
        "components of a chunk",
        "chunk{}",
        "chunks of {}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
    )
    sync_top_k: int = option(
        4,
        Kind.COUNT,
        "components sent of a chunk",
        "largest{}",
        "largest {} sent",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
    )
    sync_period: int = option(
        16,
        Kind.COUNT,
        "steps between exchanges",
        "period{}",
        "every {} steps",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
    )
    sync_sign: bool = option(
        True,
        Kind.SWITCH,
        "sign descent",
        "unsigned",
        "without signs",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
    )
    sync_decay_permille: int = option(
        999,
        Kind.COUNT,
        "momentum decay",
        "decay{}",
        "momentum decays to {} ‰",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        lowest=0,
        qualifies="gradient_sync",
        unit="‰",
    )
    payload_precision: PayloadPrecision = option(
        PayloadPrecision.FP32,
        Kind.CHOICE,
        "payload format",
        "payload-{}",
        "payload in {}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        qualifies="gradient_sync",
        is_number_format=True,
    )
    gradient_clip: GradientClip = option(
        GradientClip.POST,
        Kind.CHOICE,
        "clipping",
        "clip-{}",
        "clipped {}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        changes_mathematics=(GradientClip.PRE, GradientClip.BUCKET),
        layer=CommunicationLayer.TASKS,
    )
    batch_balance: BatchBalance = option(
        BatchBalance.NONE,
        Kind.CHOICE,
        "batch balance",
        "balance-{}",
        "batches balanced {}",
        topic=Topic.BATCH,
        enters=CostPart.MATRIX_PRODUCTS,
    )
    num_dealing_ranks: int = option(
        0,
        Kind.COUNT,
        "ranks that deal sequences",
        "deal{}",
        "dealt among {} ranks",
        topic=Topic.BATCH,
        enters=CostPart.MATRIX_PRODUCTS,
        lowest=0,
        qualifies="batch_balance",
    )
    sequence_packing: bool = option(
        False,
        Kind.SWITCH,
        "sequence packing",
        "packed",
        "packed sequences",
        topic=Topic.BATCH,
        enters=CostPart.MATRIX_PRODUCTS,
    )
    collective_hierarchy: CollectiveHierarchy = option(
        CollectiveHierarchy.FLAT,
        Kind.CHOICE,
        "hierarchy of collectives",
        "{}",
        "{} collectives",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        layer=CommunicationLayer.COLLECTIVES,
    )
    rank_placement: RankPlacement = option(
        RankPlacement.BLOCK,
        Kind.CHOICE,
        "rank placement",
        "{}",
        "{} placement",
        topic=Topic.PIPELINE,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.NETWORK,
    )
    pxn: bool = option(
        True,
        Kind.SWITCH,
        "relay to the right rail",
        "no-pxn",
        "without PXN",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.FLOWS,
    )
    queue_pairs: int = option(
        1,
        Kind.COUNT,
        "queue pairs",
        "qps{}",
        "{} queue pairs per connection",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.FLOWS,
    )

    def __post_init__(self) -> None:
        check.positive(self, *_FROM_ONE)
        check.non_negative(self, *_FROM_ZERO)

    @property
    def data_parallel_degree(self) -> int:
        """Replicas of the model, sharded or not: how many ways the batch is split."""
        return self.data_parallel_replicate_degree * self.data_parallel_shard_degree

    @property
    def world_size(self) -> int:
        """Ranks; the expert degree is no factor, it divides the shard, context and tensor ranks."""
        return (
            self.data_parallel_degree
            * self.context_parallel_degree
            * self.tensor_parallel_degree
            * self.pipeline_parallel_degree
        )

    @property
    def pipeline_stride(self) -> int:
        """How far apart the ranks of neighbouring pipeline ranks are, by ``rank_order``."""
        between = 1 + (self.data_parallel_replicate_degree - 1) * (self.rank_order == RankOrder.STAGES_OUTERMOST)
        inner = self.data_parallel_shard_degree * self.context_parallel_degree * self.tensor_parallel_degree
        return inner * between

    @property
    def num_stages(self) -> int:
        """Pipeline stages, in PyTorch's sense."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank

    @property
    def is_emulated(self) -> bool:
        """Whether it runs a number format that its hardware lacks: its speed says nothing, so it has no rank."""
        return self.precision == Precision.FP8_EMULATED

    @property
    def changes_mathematics(self) -> bool:
        """Whether it trains another function than most layouts do, so that only its loss says what its speed is worth.

        Layouts that do not are equal but for rounding and the order of sums.
        """
        return any(getattr(self, name) in OPTIONS[name].changes_mathematics for name in _CHANGING)

    @property
    def needs_passed_gate(self) -> bool:
        """Whether it is ranked only once a loss gate has passed it: it sends less than its gradients, or clips early.

        What it saves in time it may lose in every step; other number formats are known to train about as well.
        """
        return self.gradient_sync != GradientSync.FULL or self.gradient_clip != GradientClip.POST

    def mathematics_reference(self, precisions: Collection[Precision]) -> Layout:
        """This layout without what changes the mathematics: what its losses are compared with.

        It is the layout itself where nothing does.

        Args:
            precisions: Formats that the accelerator multiplies; bf16 stands in for fp8 where it is one of them, else
                fp32.
        """
        changed = [name for name in _CHANGING if getattr(self, name) in OPTIONS[name].changes_mathematics]
        values = {name: OPTIONS[name].default for name in changed}
        values |= {name: o.default for name, o in OPTIONS.items() if o.qualifies in changed}
        if "precision" in changed and Precision.BF16 not in precisions:
            values |= {"precision": Precision.FP32, "fp32_gradient_reduce": False}  # gradients are fp32 already
        return replace(self, **values)  # type: ignore[arg-type]  # each field has its own type

    def says(self, name: str) -> bool:
        """Whether the layout's name holds the value of a field: it differs from plain, or is always of interest."""
        one = OPTIONS[name]
        if name == "data_parallel_shard_degree" and self.shard_level != ShardLevel.NONE:
            return True  # a single one, too: context ranks share with it
        if one.said_beside and getattr(self, one.said_beside) > 1:
            return True
        return bool(one.always_said or getattr(self, name) != one.default)

    def __str__(self) -> str:
        """The degrees that differ from 1 and the choices that differ from plain: ``tp2 pp4 1f1b mb1 recompute-full``.

        No two layouts have the same words: ``words.layout_of`` reads them back.
        """
        return " ".join(self._words())

    def _words(self) -> Iterator[str]:
        for name, one in _IN_ORDER_OF_NAME:
            value = getattr(self, name)
            if not self.says(name):
                continue
            if name == "data_parallel_shard_degree":
                yield f"{SHARD_WORDS[self.shard_level]}{value}"
            elif one.word:
                yield one.said(value)


SHARD_WORDS: Mapping[ShardLevel, str] = {
    ShardLevel.NONE: "shard",  # of no legal layout
    ShardLevel.OPTIMIZER: "zero",
    ShardLevel.GRADIENTS: "shardgrad",  # FSDP's SHARD_GRAD_OP
    ShardLevel.PARAMETERS: "fsdp",
}
"""Words before the shard degree, which say what is sharded too."""

OPTIONS: dict[str, Option] = options_of(Layout)
"""What is known of each field, in their order."""

LAYOUT_FIELDS: tuple[str, ...] = tuple(OPTIONS)

RANK_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
)
"""Degrees whose product is the number of ranks, in the order in which sentences name them."""


def fields_entering(part: CostPart) -> tuple[str, ...]:
    """Every field that a part of the cost model depends on, those of the parts inside it included."""
    return tuple(name for name, one in OPTIONS.items() if one.enters <= part)


_FROM_ONE = tuple(name for name, one in OPTIONS.items() if one.is_number and one.lowest == 1)
_FROM_ZERO = tuple(name for name, one in OPTIONS.items() if one.is_number and one.lowest == 0)
_CHANGING = tuple(name for name, one in OPTIONS.items() if one.changes_mathematics)
_IN_ORDER_OF_NAME = tuple(sorted(OPTIONS.items(), key=lambda named: named[1].topic))  # stable: else by field


_SHARDED = {word: level for level, word in SHARD_WORDS.items()}

_NUMBERS: Mapping[str, str] = {
    one.word.removesuffix("{}"): name for name, one in OPTIONS.items() if one.is_number and one.word
} | dict.fromkeys(_SHARDED, "data_parallel_shard_degree")
"""Fields by the word before their number."""

_WORDS: Mapping[str, Mapping[str, Any]] = {
    one.said(value): {name: one.plain(value)}
    for name, one in OPTIONS.items()
    for value in (one.values if one.kind == Kind.CHOICE else (not one.default,))
    if one.word and not one.is_number
}
"""Words without a number, and what they set; a switch has one for what it is not by default."""


def layout_of(text: str) -> Layout:
    """The layout that the words name, the one that ``str`` wrote them for; what they leave out has its default.

    Raises:
        InvalidInput: As for ``fields_said``.
    """
    return Layout(**{name: OPTIONS[name].from_plain(value, name) for name, value in fields_said(text).items()})  # type: ignore[arg-type]  # each field has its own type


def fields_said(text: str) -> dict[str, Any]:
    """The fields of a layout that words name, in the form of JSON.

    The words are those of ``Layout``: ``fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16``. ``zero8`` shards
    the optimizer over 8 ranks, ``shardgrad8`` gradients too, ``fsdp8`` all. Upper case is read as lower case.

    Raises:
        InvalidInput: A word is unknown, with the nearest that is known; or a field is said twice.
    """
    fields: dict[str, Any] = {}
    for word in text.lower().split():
        for name, value in _fields(word).items():
            if name in fields:
                raise InvalidInput("layout", word, f"says {name} again")
            fields[name] = value
    if "fp8_recipe" in fields:  # a recipe says that there is something to scale
        fields.setdefault("precision", Precision.FP8.label)
    return fields


def _fields(word: str) -> Mapping[str, Any]:
    if word in _WORDS:
        return _WORDS[word]
    found = re.fullmatch(r"([a-z]+)(0|[1-9][0-9]{0,11})", word)
    if found is None or found[1] not in _NUMBERS or int(found[2]) < OPTIONS[_NUMBERS[found[1]]].lowest:
        rule = "is no word of a layout; the tables of predict print layouts in them, and docs/layouts.md lists all"
        raise InvalidInput("layout", word, rule, _nearest(word))
    level = {"shard_level": _SHARDED[found[1]].label} if found[1] in _SHARDED else {}
    return {_NUMBERS[found[1]]: int(found[2]), **level}


def _nearest(word: str) -> str:
    """The closest word there is, however far; with the number that was given, if one was."""
    number = "".join(re.findall("[1-9][0-9]{0,11}$", word))
    numbered = [f"{name}{number or 1}" for name in _NUMBERS]
    near = get_close_matches(word, (*_WORDS, *numbered), 1) or get_close_matches(
        word, numbered if number else (*_WORDS,), 1, 0.0
    )
    return near[0]
