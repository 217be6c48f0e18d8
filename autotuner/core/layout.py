"""Layout: one complete choice of how a model is trained, and its name. ``rules`` decides which layouts are legal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

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
from autotuner.core.option import (
    ALL,
    MACHINERY,
    METHOD,
    NOT_EQUIVALENT,
    SETTING,
    Burden,
    CommunicationLayer,
    CostPart,
    Count,
    CountFromZero,
    Degree,
    Kind,
    Option,
    OptionSpec,
    Percent,
    Topic,
    collective_option,
    degree,
    exchange_detail,
    option,
    pipeline_option,
    specs_of,
)

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""Default of DistributedDataParallel's ``bucket_cap_mb`` (documentation of PyTorch 2.13)."""

_KERNELS = AttentionKernel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LayoutOptions:
    """The options of a layout. ``Layout`` has one value for each option, ``LayoutColumns`` a column of values.

    Neighbouring rank numbers belong to one tensor group. After the tensor axis come the context, data shard and data
    replicate axes, and pipeline is the outermost axis; ``rank_order`` swaps the last two axes. Because the ranks of a
    tensor group have neighbouring numbers, the group stays inside a node. An option that has no effect together with
    the values of the other options keeps its default. Therefore two layouts that run in the same way are equal.
    """

    data_parallel_replicate_degree: Option[Degree] = degree(
        "dp{}", label="replicate", enters=CostPart.STEP, searched=(1,)
    )
    data_parallel_shard_degree: Option[Degree] = degree(label="shard", enters=CostPart.STEP)
    tensor_parallel_degree: Option[Degree] = degree(
        "tp{}",
        label="tensor",
        enters=CostPart.PRODUCTS,
        step_parts=("tensor_communication_s",),
        burdens=(Burden(METHOD, "each matrix is split over several ranks"),),
    )
    context_parallel_degree: Option[Degree] = degree(
        "cp{}",
        label="context",
        enters=CostPart.PRODUCTS,
        searched=(1,),
        step_parts=("context_communication_s", "attention_s"),
        burdens=(Burden(METHOD, "a sequence is split over several ranks"),),
    )
    expert_parallel_degree: Option[Degree] = degree(
        "ep{}",
        label="expert",
        enters=CostPart.PRODUCTS,
        step_parts=("expert_communication_s",),
        burdens=(Burden(METHOD, "tokens are sent to ranks that change from step to step"),),
    )
    pipeline_parallel_degree: Option[Degree] = degree(
        "pp{}",
        label="pipeline",
        enters=CostPart.RANK,
        step_parts=("pipeline_communication_s", "bubble_s"),
        burdens=(Burden(METHOD, "each rank has a part of the layers, and waits for other ranks"),),
    )
    virtual_stages_per_rank: Option[Count] = option(
        1,
        word="v{}",
        topic=Topic.DEGREES,
        enters=CostPart.RANK,
        label="stages per rank",
        searched=ALL,
        is_split=True,
        burdens=(Burden(SETTING, "a rank has layers that do not follow each other"),),
    )
    micro_batch_size: Option[Count] = option(
        1,
        word="mb{}",
        topic=Topic.BATCH,
        enters=CostPart.PRODUCTS,
        label="micro-batch",
        searched=ALL,
        is_split=True,
        always_shown=True,
        phrase="micro-batch {}",
    )
    pipeline_schedule: Option[PipelineSchedule] = pipeline_option(
        PipelineSchedule.ONE_F_ONE_B,
        word="{}",
        label="schedule",
        searched=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B),
        is_split=True,
        shown_beside="pipeline_parallel_degree",
        phrase="schedule {}",
        step_parts=("pipeline_communication_s", "bubble_s"),
        burdens=(
            Burden(
                METHOD,
                "backward passes are split into two parts, and the parts are moved",
                (PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV),
            ),
            Burden(
                MACHINERY,
                "a controller measures links, and changes the order of passes between steps",
                (PipelineSchedule.ADAPTIVE,),
            ),
        ),
    )
    sequence_parallel: Option[bool] = option(
        False,
        word="sp",
        topic=Topic.TENSOR,
        enters=CostPart.PRODUCTS,
        searched=(False, True),
        phrase="sequence parallel",
        step_parts=("tensor_communication_s",),
        burdens=(Burden(SETTING, "activations between matrix products are split over ranks too"),),
    )
    """Norms and dropout are split over the tensor ranks along the sequence."""
    shard_level: Option[ShardLevel] = option(
        ShardLevel.NONE,
        topic=Topic.DATA,
        enters=CostPart.STEP,
        label="sharding",
        searched=(ShardLevel.NONE, ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
        qualifies="data_parallel_shard_degree",
        step_parts=("data_communication_s", "optimizer_s"),
        burdens=(Burden(SETTING, "optimizer states are sharded, and must be gathered to be saved"),),
    )
    reshard_after_forward: Option[bool] = option(
        False,
        word="reshard",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        searched=(False, True),
        phrase="reshard after forward",
        burdens=(Burden(SETTING, "weights are gathered and freed again within a step"),),
    )
    """Gathered parameters are freed after the forward pass and gathered again in the backward pass."""
    recompute: Option[Recompute] = option(
        Recompute.NONE,
        word="recompute-{}",
        topic=Topic.MEMORY,
        enters=CostPart.LAYER,
        searched=tuple(Recompute),
        plainest_first=tuple(reversed(Recompute)),
        phrase="recompute {}",
        step_parts=("recompute_s",),
        burdens=(Burden(SETTING, "layers run twice, and random numbers must repeat"),),
    )
    attention_kernel: Option[AttentionKernel] = option(
        _KERNELS.FLASH,
        word="{}",
        topic=Topic.ATTENTION,
        enters=CostPart.LAYER,
        label="attention",
        always_shown=True,
        plainest_first=(
            *(_KERNELS.MATH, _KERNELS.FUSED_SOFTMAX, _KERNELS.EFFICIENT, _KERNELS.FLASH_1),
            *(_KERNELS.FLEX, _KERNELS.FLASH, _KERNELS.CUDNN, _KERNELS.FLASH_3),
        ),
        phrase="{} attention",
        step_parts=("attention_s",),
        burdens=(
            Burden(
                SETTING,
                "a package, a library's version or a compiler beyond PyTorch's own kernels",
                (AttentionKernel.FLASH_3, AttentionKernel.CUDNN, AttentionKernel.FLEX),
            ),
        ),
    )
    precision: Option[Precision] = option(
        Precision.BF16,
        word="{}",
        topic=Topic.PRECISION,
        enters=CostPart.PRODUCTS,
        always_shown=True,
        is_number_format=True,
        not_equivalent=NARROW_PRECISIONS,
        phrase="{}",
        step_parts=("matrix_s",),
        burdens=(
            Burden(
                NOT_EQUIVALENT,
                "matrix products are rounded to fewer bits, so the loss must pass a convergence gate",
                NARROW_PRECISIONS,
            ),
        ),
    )
    fused_norm: Option[bool] = option(
        True, word="unfused-norm", topic=Topic.IMPLEMENTATION, enters=CostPart.LAYER, phrase="unfused norm"
    )
    first_stage_less_layers: Option[CountFromZero] = pipeline_option(
        0,
        word="lessfirst{}",
        label="fewer layers on the first stage",
        searched=ALL,
        is_split=True,
        phrase="{} layers fewer on the first stage",
        burdens=(Burden(SETTING, "stages are uneven"),),
    )
    """Layers that the first stage has less than an even split gives it, because it holds the embedding."""
    last_stage_less_layers: Option[CountFromZero] = pipeline_option(
        0,
        word="lesslast{}",
        label="fewer layers on the last stage",
        searched=ALL,
        is_split=True,
        phrase="{} layers fewer on the last stage",
        burdens=(Burden(SETTING, "stages are uneven"),),
    )
    """Layers that the last stage has less than an even split gives it, because it also computes the output
    projection."""
    loss_parallel: Option[bool] = option(
        True, word="gathered-logits", topic=Topic.LOSS, enters=CostPart.LAYER, phrase="gathered logits"
    )
    """Each tensor rank keeps its part of the logits. Otherwise all logits are gathered before the loss."""
    async_tensor_parallel: Option[bool] = option(
        False,
        word="async-tp",
        topic=Topic.TENSOR,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.TASKS,
        phrase="async tensor parallel",
        step_parts=("tensor_communication_s",),
        burdens=(Burden(METHOD, "collectives are split into parts that overlap with matrix products"),),
    )
    """Tensor collectives are cut into pieces that run while neighbouring matrix products compute."""
    context_exchange: Option[ContextExchange] = option(
        ContextExchange.RING,
        word="cp-{}",
        topic=Topic.CONTEXT,
        enters=CostPart.LAYER,
        phrase="context by {}",
        step_parts=("context_communication_s",),
        burdens=(Burden(SETTING, "an exchange in attention that is not the default of trainers"),),
    )
    recompute_every: Option[Count] = option(
        1,
        word="every{}",
        topic=Topic.MEMORY,
        enters=CostPart.RANK,
        label="recompute interval",
        qualifies="recompute",
        phrase="every {} layers",
        step_parts=("recompute_s",),
    )
    """Only every n-th layer recomputes, beginning with the first."""
    gradient_bucket_bytes: Option[Count] = option(
        DEFAULT_BUCKET_BYTES,
        word="bucket{}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        label="gradient bucket",
        unit="bytes",
        layer=CommunicationLayer.TASKS,
        phrase="buckets of {}",
    )
    """Size of the buckets in which replicas reduce gradients."""
    fp32_gradient_reduce: Option[bool] = option(
        False,
        word="fp32-reduce",
        topic=Topic.DATA,
        enters=CostPart.RANK,
        is_number_format=True,
        phrase="gradients summed in fp32",
        burdens=(Burden(SETTING, "gradients are sent in another number format than weights"),),
    )
    """Replicas and shards sum gradients in fp32, whatever the precision."""
    fp8_recipe: Option[Fp8Recipe] = option(
        Fp8Recipe.TENSORWISE,
        word="{}",
        topic=Topic.PRECISION,
        enters=CostPart.PRODUCTS,
        qualifies="precision",
        is_number_format=True,
        phrase="{}",
        step_parts=("matrix_s",),
    )
    compiled: Option[bool] = option(
        False,
        word="compiled",
        topic=Topic.IMPLEMENTATION,
        enters=CostPart.LAYER,
        phrase="compiled",
        step_parts=("pointwise_s", "host_s"),
        burdens=(Burden(METHOD, "a compiler changes the code that runs"),),
    )
    """Each layer is compiled by ``torch.compile``."""
    optimizer_kernel: Option[OptimizerKernel] = option(
        OptimizerKernel.FUSED,
        word="{}",
        topic=Topic.IMPLEMENTATION,
        enters=CostPart.STEP,
        phrase="{} optimizer",
        step_parts=("optimizer_s",),
    )
    offload_activations: Option[bool] = option(
        False,
        word="offload",
        topic=Topic.MEMORY,
        enters=CostPart.LAYER,
        label="activation offload",
        phrase="activations offloaded",
        step_parts=("offload_s",),
        burdens=(Burden(METHOD, "activations are copied to the host's memory and back"),),
    )
    """Activations wait in host memory for the backward pass."""
    optimizer_offload_percent: Option[Percent] = option(
        0,
        word="optoffload{}",
        topic=Topic.MEMORY,
        enters=CostPart.STEP,
        label="optimizer offload",
        phrase="{} % of the optimizer on the host",
        step_parts=("optimizer_s",),
        unit="%",
        offered=(0, 25, 50, 75, 100),
        only_in=("megatron-core", "megatron-bridge", "megatron-bridge-graphs", "nemo"),
        burdens=(
            Burden(
                METHOD, "CPUs of the host update weights, so gradients and weights are copied between host and device"
            ),
        ),
    )
    """Percentage of the optimizer's states that lies in host memory. The host's processors update those weights."""
    collective_algorithm: Option[CollectiveAlgorithm] = collective_option(
        CollectiveAlgorithm.AUTO,
        word="algo-{}",
        phrase="{} all-reduces",
        burdens=(
            Burden(
                SETTING,
                "a choice of the library is overridden until the job is restarted",
                (CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE),
            ),
            Burden(
                MACHINERY,
                "needs switches that add data: NVLink SHARP in a node, or SHARP and its daemons in the network",
                (CollectiveAlgorithm.NVLS, CollectiveAlgorithm.COLLNET),
            ),
        ),
    )
    collective_protocol: Option[CollectiveProtocol] = collective_option(
        CollectiveProtocol.AUTO,
        word="proto-{}",
        phrase="{} protocol",
        burdens=(Burden(SETTING, "a choice of the library is overridden until the job is restarted"),),
    )
    collective_channels: Option[CountFromZero] = collective_option(
        0,
        word="channels{}",
        phrase="{} channels",
        burdens=(Burden(SETTING, "a choice of the library is overridden until the job is restarted"),),
    )
    """Thread blocks of a GPU that NCCL communicates with at once; 0 lets NCCL choose."""
    extra_slack: Option[CountFromZero] = pipeline_option(
        0,
        word="slack{}",
        qualifies="pipeline_schedule",
        layer=CommunicationLayer.TASKS,
        phrase="{} more forwards ahead",
        step_parts=("pipeline_communication_s", "bubble_s"),
        burdens=(Burden(SETTING, "the number of forward passes ahead is set by hand"),),
    )
    """Additional forward passes per link that the adaptive schedule runs ahead, on top of those that it plans."""
    p2p_transport: Option[P2PTransport] = pipeline_option(
        P2PTransport.INLINE,
        word="{}",
        label="sends between stages",
        layer=CommunicationLayer.TASKS,
        phrase="{} sends",
        step_parts=("pipeline_communication_s", "bubble_s"),
        burdens=(Burden(MACHINERY, "helper processes send for each rank, from the host's memory"),),
    )
    num_delegates: Option[Count] = pipeline_option(
        1,
        word="delegates{}",
        label="delegates",
        qualifies="p2p_transport",
        layer=CommunicationLayer.TASKS,
        phrase="{} delegates",
        step_parts=("pipeline_communication_s",),
    )
    """Number of delegate processes that send for a rank, per neighbour and direction, if sends are delegated."""
    rank_order: Option[RankOrder] = pipeline_option(
        RankOrder.STAGES_OUTERMOST,
        word="{}",
        layer=CommunicationLayer.NETWORK,
        phrase="{}",
        step_parts=("pipeline_communication_s", "data_communication_s"),
        burdens=(Burden(SETTING, "ranks are in another order than trainers number them"),),
    )
    stage_rotation: Option[CountFromZero] = pipeline_option(
        0,
        word="rotate{}",
        layer=CommunicationLayer.NETWORK,
        phrase="stages rotated by {}",
        step_parts=("pipeline_communication_s",),
        burdens=(Burden(SETTING, "stages are in another order than trainers number them"),),
    )
    """Pipeline rank i runs where pipeline rank i + n would otherwise run. In a ring of nodes this selects the unused
    link."""
    gradient_sync: Option[GradientSync] = option(
        GradientSync.FULL,
        word="sync-{}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        label="gradient exchange",
        not_equivalent=tuple(GradientSync)[1:],
        phrase="{} exchange",
        step_parts=("data_communication_s", "optimizer_s"),
        burdens=(
            Burden(
                NOT_EQUIVALENT,
                "replicas differ and exchange only a part of their gradients, so the loss must pass a convergence gate",
            ),
        ),
    )
    """Data that replicas exchange. The shards of a replica always reduce whole gradients."""
    sync_sparsity: Option[Count] = exchange_detail(
        16, word="sparsity{}", label="elements per sent element", phrase="one of {} sent"
    )
    """One of every n momentum elements is sent; the papers call 1/n the compression rate."""
    sync_chunk: Option[Count] = exchange_detail(
        64, word="chunk{}", label="components of a chunk", phrase="chunks of {}"
    )
    """Momentum elements that are transformed together, into as many cosine components."""
    sync_top_k: Option[Count] = exchange_detail(
        4, word="largest{}", label="components sent of a chunk", phrase="largest {} sent"
    )
    sync_period: Option[Count] = exchange_detail(
        16, word="period{}", label="steps between exchanges", phrase="every {} steps"
    )
    sync_sign: Option[bool] = exchange_detail(True, word="unsigned", label="sign descent", phrase="without signs")
    """Parameters follow the sign of the exchanged values. Otherwise AdamW uses the exchanged values as the gradient."""
    sync_decay_permille: Option[CountFromZero] = exchange_detail(
        999, word="decay{}", label="momentum decay", unit="‰", phrase="momentum decays to {} ‰"
    )
    """Share of the momentum that is kept from one step to the next, in thousandths."""
    payload_precision: Option[PayloadPrecision] = exchange_detail(
        PayloadPrecision.FP32, word="payload-{}", label="payload format", is_number_format=True, phrase="payload in {}"
    )
    gradient_clip: Option[GradientClip] = option(
        GradientClip.POST,
        word="clip-{}",
        topic=Topic.DATA,
        enters=CostPart.STEP,
        label="clipping",
        not_equivalent=(GradientClip.PRE, GradientClip.BUCKET),
        layer=CommunicationLayer.TASKS,
        phrase="clipped {}",
        step_parts=("data_communication_s",),
        burdens=(
            Burden(
                NOT_EQUIVALENT,
                "gradients are clipped before they are reduced, so the loss must pass a convergence gate",
            ),
        ),
    )
    """Gradients that a trial clips: averaged, or each replica's own. No effect if the trial sets no norm."""
    batch_balance: Option[BatchBalance] = option(
        BatchBalance.NONE,
        word="balance-{}",
        topic=Topic.BATCH,
        enters=CostPart.PRODUCTS,
        phrase="batches balanced {}",
        burdens=(Burden(SETTING, "the rank that trains a sequence depends on the whole batch"),),
    )
    num_dealing_ranks: Option[CountFromZero] = option(
        0,
        word="deal{}",
        topic=Topic.BATCH,
        enters=CostPart.PRODUCTS,
        label="ranks that share sequences",
        qualifies="batch_balance",
        phrase="dealt among {} ranks",
    )
    """Number of data-parallel ranks that redistribute their sequences among each other; 0: the ranks of a node."""
    sequence_packing: Option[bool] = option(
        False,
        word="packed",
        topic=Topic.BATCH,
        enters=CostPart.PRODUCTS,
        phrase="packed sequences",
        burdens=(Burden(SETTING, "sequences share a row behind a mask"),),
    )
    """Sequences of a micro-batch share one row, and each attends only to itself. Otherwise all are padded to the
    longest."""
    collective_hierarchy: Option[CollectiveHierarchy] = collective_option(
        CollectiveHierarchy.FLAT,
        word="{}",
        enters=CostPart.STEP,
        label="hierarchy of collectives",
        phrase="{} collectives",
        burdens=(Burden(METHOD, "additional communicators within nodes and between nodes"),),
    )
    rank_placement: Option[RankPlacement] = option(
        RankPlacement.BLOCK,
        word="{}",
        topic=Topic.PIPELINE,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.NETWORK,
        phrase="{} placement",
        burdens=(Burden(SETTING, "the launcher must place ranks on nodes as the layout says"),),
    )
    pxn: Option[bool] = option(
        True,
        word="no-pxn",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        label="relay over NVLink (PXN)",
        layer=CommunicationLayer.FLOWS,
        phrase="without PXN",
        burdens=(Burden(SETTING, "a choice of the library for rails is overridden until the job is restarted"),),
    )
    """NCCL first sends data for another rail over NVLink to the accelerator on that rail (PXN: PCI x NVLink)."""
    queue_pairs: Option[Count] = option(
        1,
        word="qps{}",
        topic=Topic.DATA,
        enters=CostPart.LAYER,
        layer=CommunicationLayer.FLOWS,
        phrase="{} queue pairs per connection",
        burdens=(Burden(SETTING, "a setting of RDMA ports is overridden until the job is restarted"),),
    )
    """InfiniBand queue pairs that NCCL splits the bytes of one connection over."""


OPTIONS: Mapping[str, OptionSpec] = specs_of(LayoutOptions)
"""Declaration of each option by its name, in the order of the fields."""

RANK_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
)
"""Degrees whose product is the number of ranks, in the order in which messages list them."""

_NUMBERS = tuple(
    sorted((spec for spec in OPTIONS.values() if spec.is_number), key=lambda spec: spec.lowest, reverse=True)
)
_NOT_EQUIVALENT = tuple(spec for spec in OPTIONS.values() if spec.not_equivalent)
_IN_ORDER_OF_NAME = tuple(sorted(OPTIONS.values(), key=lambda spec: spec.topic))  # a stable sort


def options_entering(part: CostPart) -> tuple[str, ...]:
    """Return the names of the options that a part of the cost model depends on, with the options of its inner parts.

    Args:
        part: Part of the cost model.

    Example:
        >>> options_entering(CostPart.PRODUCTS)[:2]
        ('tensor_parallel_degree', 'context_parallel_degree')
    """
    return tuple(spec.name for spec in OPTIONS.values() if spec.enters <= part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(LayoutOptions):
    """One complete choice of all options: degrees, schedule, sharding, recomputation, kernels and precision.

    Raises:
        InvalidInput: A number is below its least or above its greatest legal value. ``rules`` checks everything else.

    Example:
        >>> layout = Layout(data_parallel_shard_degree=8, tensor_parallel_degree=4, shard_level=ShardLevel.PARAMETERS)
        >>> str(layout)
        'fsdp8 tp4 mb1 flash bf16'
        >>> layout.world_size
        32
    """

    def __post_init__(self) -> None:
        for spec in _NUMBERS:
            value = getattr(self, spec.name)
            if not value >= spec.lowest:
                rule = "must be above 0" if spec.lowest else "must be 0 or more"
                raise InvalidInput(spec.name, value, rule, spec.lowest)
            if spec.highest is not None and value > spec.highest:
                raise InvalidInput(spec.name, value, f"must be at most {spec.highest}", spec.highest)

    @property
    def data_parallel_degree(self) -> int:
        """The number of parts into which the global batch is split: the replicate degree times the shard degree."""
        return self.data_parallel_replicate_degree * self.data_parallel_shard_degree

    @property
    def world_size(self) -> int:
        """The number of ranks. The expert degree is not a factor: expert ranks are shard, context and tensor ranks."""
        inner = self.context_parallel_degree * self.tensor_parallel_degree * self.pipeline_parallel_degree
        return self.data_parallel_degree * inner

    @property
    def pipeline_stride(self) -> int:
        """The difference between the numbers of neighbouring pipeline ranks."""
        between = 1 + (self.data_parallel_replicate_degree - 1) * (self.rank_order == RankOrder.STAGES_OUTERMOST)
        return between * self.data_parallel_shard_degree * self.context_parallel_degree * self.tensor_parallel_degree

    @property
    def num_stages(self) -> int:
        """The number of pipeline stages, as PyTorch counts them: pipeline ranks times virtual stages per rank."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank

    @property
    def is_emulated(self) -> bool:
        """True if the number format of the layout is only emulated. Its speed is then meaningless and is not ranked."""
        return self.precision == Precision.FP8_EMULATED

    @property
    def is_equivalent(self) -> bool:
        """True if the layout is numerically equivalent to plain training, up to rounding and the order of sums."""
        return not self._not_equivalent_options()

    @property
    def needs_passed_gate(self) -> bool:
        """True if the layout must pass a convergence gate (a short training that compares losses) before it is ranked.

        The replicas of such layouts exchange less than their gradients, or clip their gradients before averaging them.

        Layouts with 8-bit or 4-bit formats are ranked before their gate, because such formats are known to train about
        as well.
        """
        return self.gradient_sync != GradientSync.FULL or self.gradient_clip != GradientClip.POST

    def equivalent_reference(self, precisions: Collection[Precision]) -> Layout:
        """Return the layout to compare losses with: this layout with numerically equivalent options.

        Options that are not numerically equivalent to plain training get their defaults.

        Args:
            precisions: Number formats that the accelerator multiplies. A narrow format becomes bf16 if the accelerator
                multiplies bf16, otherwise fp32.
        """
        changed = self._not_equivalent_options()
        plain: dict[str, Any] = {name: OPTIONS[name].default for name in changed}
        plain |= {spec.name: spec.default for spec in OPTIONS.values() if spec.qualifies in changed}
        if "precision" in changed and Precision.BF16 not in precisions:
            plain |= {"precision": Precision.FP32, "fp32_gradient_reduce": False}  # gradients are fp32 already
        return replace(self, **plain)

    def _not_equivalent_options(self) -> list[str]:
        return [spec.name for spec in _NOT_EQUIVALENT if getattr(self, spec.name) in spec.not_equivalent]

    def shows(self, name: str) -> bool:
        """Return True if the layout's name shows the value of the option with this name.

        A name leaves out most options that have their default value.
        """
        spec = OPTIONS[name]
        if name == "data_parallel_shard_degree" and self.shard_level != ShardLevel.NONE:
            return True  # also a single one: context ranks share with it
        if spec.shown_beside and getattr(self, spec.shown_beside) > 1:
            return True
        return bool(spec.always_shown or getattr(self, name) != spec.default)

    def __str__(self) -> str:
        """Return the layout's name: ``tp2 pp4 1f1b mb1 recompute-full``. No two layouts have the same name.

        The name shows the degrees above 1 and the options that differ from their defaults. ``parse`` reads it.
        """
        return " ".join(self._words())

    def _words(self) -> Iterator[str]:
        for spec in _IN_ORDER_OF_NAME:
            if not self.shows(spec.name):
                continue
            value = getattr(self, spec.name)
            if spec.name == "data_parallel_shard_degree":
                yield f"{SHARD_WORDS[self.shard_level]}{value}"
            elif spec.word:
                yield spec.word.format(value)

    @classmethod
    def parse(cls, name: str) -> Layout:
        """Return the layout that a name such as ``fsdp8 tp4 mb1`` describes; other options get their defaults.

        Raises:
            InvalidInput: A word is unknown, or two words set the same option. The error suggests the nearest known
                word.

        Example:
            >>> layout = Layout.parse("fsdp8 tp4 pp2 1f1b mb1 recompute-full")
            >>> layout.world_size, layout.recompute.label
            (64, 'full')
        """
        plain = parse_words(name)
        return cls(**{key: OPTIONS[key].from_plain(value) for key, value in plain.items()})  # type: ignore[arg-type]


# ---------------------------------------------------------------- names
SHARD_WORDS: Mapping[ShardLevel, str] = {
    ShardLevel.NONE: "shard",  # no legal layout has this word
    ShardLevel.OPTIMIZER: "zero",
    ShardLevel.GRADIENTS: "shardgrad",  # FSDP's SHARD_GRAD_OP
    ShardLevel.PARAMETERS: "fsdp",
}
"""Word for the shard level in a layout's name, which stands before the shard degree."""

_LEVELS = {word: level.label for level, word in SHARD_WORDS.items()}

_NUMBER_WORDS: Mapping[str, str] = {
    spec.word.removesuffix("{}"): spec.name for spec in _NUMBERS if spec.word
} | dict.fromkeys(_LEVELS, "data_parallel_shard_degree")
"""Name of the option for each word that stands before a number in a layout's name."""

_PLAIN_WORDS: Mapping[str, Mapping[str, int | str]] = {
    spec.word.format(value): {spec.name: spec.to_plain(value)}
    for spec in OPTIONS.values()
    for value in (spec.values if spec.kind is Kind.CHOICE else (not spec.default,))
    if spec.word and not spec.is_number
}
"""Option and value for each word without a number in a layout's name. A switch has one word, for its value that is not
the default."""

_NUMBERED = re.compile(r"([a-z]+)(0|[1-9][0-9]{0,11})")


def parse_words(name: str) -> dict[str, int | str]:
    """Return the options that a layout's name sets, with their values as JSON holds them.

    ``zero8`` shards the optimizer state over 8 ranks, ``shardgrad8`` also the gradients, and ``fsdp8`` also the
    parameters. Upper and lower case mean the same.

    Raises:
        InvalidInput: A word is unknown, or two words set the same option. The error suggests the nearest known word.

    Example:
        >>> parse_words("zero8 tp4")
        {'data_parallel_shard_degree': 8, 'shard_level': 'optimizer', 'tensor_parallel_degree': 4}
    """
    found: dict[str, int | str] = {}
    for word in name.lower().split():
        for option_name, value in _parse_word(word).items():
            if option_name in found:
                raise InvalidInput("layout", word, f"sets {option_name} a second time; keep only one of the two words")
            found[option_name] = value
    if "fp8_recipe" in found:  # a recipe implies that something is scaled
        found.setdefault("precision", Precision.FP8.label)
    return found


def _parse_word(word: str) -> Mapping[str, int | str]:
    if word in _PLAIN_WORDS:
        return _PLAIN_WORDS[word]
    match = _NUMBERED.fullmatch(word)
    name = _NUMBER_WORDS.get(match[1]) if match else None
    if match is None or name is None or int(match[2]) < OPTIONS[name].lowest:
        rule = "is not a word of a layout, such as tp4 or fsdp8; docs/reference/layouts.md lists all words"
        raise InvalidInput("layout", word, rule, _nearest_word(word))
    level = {"shard_level": _LEVELS[match[1]]} if match[1] in _LEVELS else {}
    return {name: int(match[2]), **level}


def _nearest_word(word: str) -> str:
    """Return the known word that is most similar to an unknown one, with the number that was given."""
    number = "".join(re.findall("[1-9][0-9]{0,11}$", word))
    numbered = [f"{name}{number or 1}" for name in _NUMBER_WORDS]
    near = get_close_matches(word, (*_PLAIN_WORDS, *numbered), 1)
    return (near or get_close_matches(word, numbered if number else (*_PLAIN_WORDS,), 1, 0.0))[0]
