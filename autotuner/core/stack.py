"""Stack: the software that runs a training, and the costs that it adds."""

from __future__ import annotations

from typing import Literal, TypeAlias

from autotuner.core.choices import AttentionKernel, PipelineSchedule
from autotuner.core.errors import InvalidInput
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.value import Bytes, NonNegative, Positive, Seconds, Share, value

Dispatch: TypeAlias = Literal["all_to_all", "deduplicated", "all_gather"]

TORCH_KERNELS = (
    AttentionKernel.MATH,
    AttentionKernel.EFFICIENT,
    AttentionKernel.FLEX,
    AttentionKernel.FLASH,
    AttentionKernel.CUDNN,
)
"""Backends of PyTorch's ``scaled_dot_product_attention``, and FlexAttention (documentation of PyTorch 2.13)."""


@value
class Stack:
    """The constants of a training framework in the cost model: kernels, memory use, overlap and overheads.

    The default values describe PyTorch as the product's own trial job runs it. The catalog has other stacks, with their
    sources.
    """

    name: str = "torch"
    attention_kernels: tuple[AttentionKernel, ...] = TORCH_KERNELS
    """Attention kernels that the software uses if the accelerator has them."""
    pipeline_schedules: tuple[PipelineSchedule, ...] = tuple(PipelineSchedule)
    """Pipeline schedules that the software can run."""
    compiles: bool = True
    """True if the software can compile a layer (``torch.compile``)."""
    multiplies_fp8: bool = True
    """True if the software can multiply matrices in fp8."""
    sums_gradients_in_fp32: bool = False
    """True if gradients are summed in fp32 even if training uses 16-bit formats."""
    balances_stages: bool = False
    """True if the stage with the output projection gets fewer layers; otherwise layers are split evenly."""
    keeps_receive_buffers: bool = True
    """True if a pipeline rank keeps one receive buffer for every micro-batch during the whole step."""
    blocks_sends: bool = False
    """True if a pipeline rank computes nothing while it sends; otherwise sends overlap with computation."""
    overlaps_tensor_forward: Share = 0.0
    """Share of the products of a forward pass during which tensor collectives make progress, 0..1, for layouts without
    ``async_tensor_parallel``."""
    overlaps_tensor_backward: Share = 0.0
    """Share of the products of weight gradients during which tensor collectives of the backward pass make progress,
    0..1."""
    gathers_logits: bool = False
    """True if every tensor rank gathers all logits for the loss; otherwise each rank keeps its part of the
    vocabulary."""
    selective_recompute: tuple[RecomputePolicy, ...] = (RecomputePolicy.ALL_BUT_PRODUCTS,)
    """Policies of selective recomputation, which are all applied together."""
    gathers_again: bool = False
    """True if a rank with sequence parallelism keeps its own part of a block's input and gathers the whole input again
    in the backward pass (arXiv 2205.05198, section 4.2.2); otherwise the gathered input is kept."""
    fuses_gate: bool = False
    """True if one kernel computes the activation of a gate and its product, and keeps only its inputs; otherwise both
    results are kept."""
    allocates_gradients: bool = False
    """True if gradients have memory from the start; otherwise memory is allocated in the first backward pass."""
    fills_buckets: bool = True
    """True if unsharded gradients are reduced in buckets of ``Layout.gradient_bucket_bytes``; otherwise layer by
    layer."""
    fp8_implementation: Literal["torchao", "transformer_engine"] = "torchao"
    """Library that rounds to 8 bits or fewer. Operations of torchao are fused if the layout is compiled."""
    gathers_fp8_activations: bool = False
    """True if tensor ranks gather hidden states after they were rounded to fp8, where the scaling method allows it."""
    gathers_fp8_parameters: bool = False
    """True if data-parallel ranks gather weights after they were rounded to fp8, where the scaling method allows it."""
    repeats_fp8_products: bool = False
    """True if selective recomputation recognises matrix products by their 16-bit operation. It then repeats compiled
    products that run in 8 bits, instead of keeping their results."""
    widens_context_gradients: bool = True
    """True if context ranks send gradients of keys and values in fp32 even in bf16 training."""
    splits_experts: bool = False
    """True if tensor ranks split each expert even if expert ranks hold the experts (Megatron-LM's expert tensor
    parallel degree equals its tensor degree); otherwise expert ranks hold whole experts."""
    groups_experts: bool = False
    """True if one kernel multiplies all experts of a rank (grouped GEMM); otherwise the experts run one after the
    other."""
    shards_whole_experts: bool = True
    """True if data-parallel ranks that shard gradients or parameters take whole experts where there are no expert
    ranks. If there are more ranks than experts, some ranks have none (FSDP2 splits the first dimension)."""
    dispatch: Dispatch = "all_to_all"
    """Way in which tokens are sent to their experts: ``all_to_all`` sends a copy to each expert, ``deduplicated`` sends
    one copy to each rank and node that needs it (DeepEP, HybridEP), ``all_gather`` sends all tokens to all ranks."""
    dispatch_waits: bool = True
    """True if the host must read the number of tokens per expert before it launches the kernels of the experts."""
    hides_dispatch: Share = 0.0
    """Share of the dispatch that runs during the computation of another micro-batch, 0..1."""
    expert_imbalance: float = 1.1
    """Tokens of the rank with most tokens divided by the mean, among ranks that hold one expert each."""
    weighs_answers: bool = True
    """True if routing weights multiply the outputs of experts; the outputs are then kept for the gradients of the
    weights. Otherwise the weights multiply the input of the last product."""
    routing_traffic: Positive = 1.5
    """Memory traffic of sorting tokens by expert and back, divided by the traffic of one fused kernel each way."""
    fuses_loss: bool = False
    """True if softmax and cross-entropy are one kernel on 16-bit logits, which also writes the gradient."""
    keeps_logits: bool = False
    """True if 16-bit logits are kept during the backward pass of the loss, as they are in a pipeline; otherwise they
    are freed."""
    overlaps_data_parallel: Share = 0.2
    """Share of the backward pass during which data-parallel reductions make progress, 0..1."""
    matrix_slowdown: Positive = 1.16
    """Time of matrix products divided by the time of the same shapes in benchmarks of current libraries."""
    pointwise_traffic: Positive = 1.9
    """Memory traffic of norms, activations and sums, divided by the traffic if each of them were one fused kernel."""
    cast_traffic: Positive = 1.0
    """Memory traffic of rounding to 8 bits or fewer, divided by the traffic that the formulas count."""
    unfused_norm_traffic: NonNegative = 13.0
    """Further traffic of a norm that consists of elementary operations, in passes over its input."""
    kernel_launch_s: Seconds = 40e-6
    """Time of the host to launch one kernel from the framework's own code."""
    tensor_wait_s: Seconds = 0.0
    """Time that the host waits for each ring step of a tensor group while pipeline sends cross nodes. Without such
    sends: the wait for each ring step that crosses nodes itself."""
    send_wait_s: Seconds = 0.5e-3
    """Time in which the two ends of a pipeline send synchronise, on top of the transfer."""
    step_overhead_s: Seconds = 5e-3
    """Time that every rank spends once per step on logging, clipping, zeroing gradients and synchronising."""
    unfused_norm_bytes: NonNegative = 5.0
    """Memory that a norm of elementary operations keeps in addition to a fused norm, in bytes per element of its
    input."""
    math_in_fp32: bool = True
    """True if the kernel ``math`` is PyTorch's. It keeps its inputs in fp32, each key and value head once per query
    head, and the scores. The blocks of ring attention keep no scores."""
    scores_alive: NonNegative = 0.0
    """Number of copies of one layer's attention scores in its backward pass, if the kernel stores the scores in
    memory."""
    logits_copies: NonNegative = 2.0
    """Number of copies of the logits in fp32 during the backward pass of the loss, in addition to those that the
    forward pass saved."""
    split_logits_copies: NonNegative = 1.0
    """Number of further copies of the logits if tensor ranks split the vocabulary."""
    scatter: NonNegative | None = None
    """Standard deviation of log(measured / predicted step time) that parts and cluster do not explain. None: the
    deviation of similar runs, if some were compared (``catalog/compared.toml``)."""
    activation_overhead: NonNegative = 0.15
    """Activation memory in addition to what the formulas count, as a share of it."""
    allowance_bytes: Bytes = 2_000_000_000
    """Bytes that a process needs for the device context, libraries, communicators and workspaces."""

    def __post_init__(self) -> None:
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel, for example math")
        if self.expert_imbalance < 1:
            raise InvalidInput("expert_imbalance", self.expert_imbalance, "must be 1 or more", 1.0)
