"""Stack: the software that trains, and the costs that it adds."""

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
"""Backends of ``scaled_dot_product_attention``, and FlexAttention beside it (PyTorch 2.13's documentation)."""


@value
class Stack:
    """A training framework as the cost model sees it: its kernels, its memory use, its overlap and its overheads.

    The defaults are those of PyTorch as the trial job runs it. The catalog has others, with their sources.
    """

    name: str = "torch"
    attention_kernels: tuple[AttentionKernel, ...] = TORCH_KERNELS
    """Attention kernels that it calls if the accelerator has them."""
    pipeline_schedules: tuple[PipelineSchedule, ...] = tuple(PipelineSchedule)
    """Pipeline schedules that it can run."""
    compiles: bool = True
    """True if it can compile a layer (``torch.compile``)."""
    multiplies_fp8: bool = True
    """True if it can multiply matrices in fp8."""
    sums_gradients_in_fp32: bool = False
    """True if gradients are summed in fp32 in mixed precision, too."""
    balances_stages: bool = False
    """True if the stage with the output projection gets fewer layers; otherwise layers are split evenly."""
    keeps_receive_buffers: bool = True
    """True if a pipeline rank holds a receive buffer for every micro-batch during the whole step."""
    blocks_sends: bool = False
    """True if a pipeline rank computes nothing while it sends; otherwise sends overlap with computation."""
    overlaps_tensor_forward: Share = 0.0
    """Share of a forward pass's products under which tensor collectives make progress, 0..1, for layouts without
    ``async_tensor_parallel``."""
    overlaps_tensor_backward: Share = 0.0
    """Share of the products of weight gradients under which tensor collectives of the backward pass make progress,
    0..1."""
    gathers_logits: bool = False
    """True if every tensor rank gets all logits for the loss; otherwise each keeps its part of the vocabulary."""
    selective_recompute: tuple[RecomputePolicy, ...] = (RecomputePolicy.ALL_BUT_PRODUCTS,)
    """Policies of selective recomputation, which apply together."""
    gathers_again: bool = False
    """True if sequence parallelism keeps its own part of a block's input and gathers the whole again in the backward
    pass (arXiv 2205.05198, section 4.2.2); otherwise the gathered input is kept."""
    fuses_gate: bool = False
    """True if a gate's activation and its product are one kernel, which keeps only its inputs; otherwise both results
    are kept."""
    allocates_gradients: bool = False
    """True if gradients have memory from the start; otherwise they get it in their first backward pass."""
    fills_buckets: bool = True
    """True if gradients that are not sharded are reduced in buckets of ``Layout.gradient_bucket_bytes``; otherwise
    layer by layer."""
    fp8_implementation: Literal["torchao", "transformer_engine"] = "torchao"
    """Library that rounds to 8 bits or fewer. Operations of torchao are fused if the layout is compiled."""
    gathers_fp8_activations: bool = False
    """True if tensor ranks gather hidden states after rounding, where a scale allows it."""
    gathers_fp8_parameters: bool = False
    """True if data-parallel ranks gather weights after rounding, where a scale allows it."""
    repeats_fp8_products: bool = False
    """True if selective recomputation recognises products by their 16-bit operation, and so computes compiled products
    in 8 bits again."""
    widens_context_gradients: bool = True
    """True if context ranks send gradients of keys and values in fp32, in bf16 training too."""
    splits_experts: bool = False
    """True if tensor ranks split each expert even if expert ranks hold them (Megatron-LM's expert tensor parallel
    degree equals the tensor degree); otherwise expert ranks hold whole experts."""
    groups_experts: bool = False
    """True if all experts of a rank multiply side by side in one kernel; otherwise one after the other."""
    shards_whole_experts: bool = True
    """True if data-parallel ranks that shard gradients or parameters take whole experts where there are no expert
    ranks, so that more ranks than experts leave some without (FSDP2 cuts the first dimension)."""
    dispatch: Dispatch = "all_to_all"
    """Exchange of tokens with their experts: ``all_to_all`` sends a copy to each expert, ``deduplicated`` one to each
    rank and node that needs it (DeepEP, HybridEP), ``all_gather`` all tokens to all."""
    dispatch_waits: bool = True
    """True if the host reads the number of tokens before it launches the kernels of the experts."""
    hides_dispatch: Share = 0.0
    """Share of the dispatch that runs under the computation of another micro-batch, 0..1."""
    expert_imbalance: float = 1.1
    """Tokens of the fullest rank over the mean, among ranks that hold one expert each."""
    weighs_answers: bool = True
    """True if routing weights multiply the outputs of experts, which are kept for the gradients of the weights;
    otherwise they multiply the input of the last product."""
    routing_traffic: Positive = 1.5
    """Memory traffic of sorting tokens by expert and back, divided by that of one fused kernel each way."""
    fuses_loss: bool = False
    """True if softmax and cross-entropy are one kernel on 16-bit logits that also writes the gradient."""
    keeps_logits: bool = False
    """True if 16-bit logits stay through the loss's backward, as they do in a pipeline; otherwise they are freed."""
    overlaps_data_parallel: Share = 0.2
    """Share of the backward pass under which data-parallel reductions make progress, 0..1."""
    matrix_slowdown: Positive = 1.16
    """Time of matrix products divided by that of the same shapes in benchmarks of current libraries."""
    pointwise_traffic: Positive = 1.9
    """Memory traffic of norms, activations and sums, divided by that of one fused kernel each."""
    cast_traffic: Positive = 1.0
    """Memory traffic of rounding to 8 bits or fewer, divided by the counted traffic."""
    unfused_norm_traffic: NonNegative = 13.0
    """Further traffic of a norm composed of elementary operations, in passes over its input."""
    kernel_launch_s: Seconds = 40e-6
    """Time of the host to launch one kernel from the framework's own code."""
    tensor_wait_s: Seconds = 0.0
    """Time that the host waits for each step of a tensor group's ring while pipeline sends cross nodes; without such
    sends, for each step that crosses nodes itself."""
    send_wait_s: Seconds = 0.5e-3
    """Rendezvous of the two ends of every pipeline send, beyond the wire."""
    step_overhead_s: Seconds = 5e-3
    """Time once per step on every rank: logging, clipping, zeroing, synchronising."""
    unfused_norm_bytes: NonNegative = 5.0
    """Memory that a norm of elementary operations keeps beyond a fused one, in bytes per element of its input."""
    math_in_fp32: bool = True
    """True if the kernel ``math`` is PyTorch's, which keeps its factors in fp32, each kv head once per query head, and
    the scores. Blocks of a ring keep no scores."""
    scores_alive: NonNegative = 0.0
    """Copies of one layer's attention scores in its backward, if a kernel has them in memory at all."""
    logits_copies: NonNegative = 2.0
    """Copies of the logits in fp32 during the loss's backward, beyond those that the forward saved."""
    split_logits_copies: NonNegative = 1.0
    """Further copies of the logits if tensor ranks split the vocabulary."""
    scatter: NonNegative | None = None
    """Standard deviation of log(measured / predicted step time) beyond that explained by parts and cluster; None: that
    of similar runs, if some were compared (``catalog/compared.toml``)."""
    activation_overhead: NonNegative = 0.15
    """Share of activations held beyond those that the formulas count."""
    allowance_bytes: Bytes = 2_000_000_000
    """Bytes of context, libraries, communicators and workspaces of a process."""

    def __post_init__(self) -> None:
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel", "math")
        if self.expert_imbalance < 1:
            raise InvalidInput("expert_imbalance", self.expert_imbalance, "must be 1 or more", 1.0)
