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
    """What a training framework keeps, fuses, overlaps and waits for; layouts of one stack share it.

    The defaults are those of PyTorch as the trial job runs it. The catalog has others, with their sources.
    """

    name: str = "torch"
    attention_kernels: tuple[AttentionKernel, ...] = TORCH_KERNELS
    """Implementations that it calls where the accelerator has them."""
    pipeline_schedules: tuple[PipelineSchedule, ...] = tuple(PipelineSchedule)
    """Orders of forwards and backwards that it can run."""
    compiles: bool = True
    """It offers to compile a layer (``torch.compile``)."""
    multiplies_fp8: bool = True
    """It offers matrix products in fp8."""
    sums_gradients_in_fp32: bool = False
    """In mixed precision too."""
    balances_stages: bool = False
    """Layers are dealt so that the stage with the output projection has fewer; else evenly."""
    keeps_receive_buffers: bool = True
    """A pipeline rank holds a receive buffer for every micro-batch all through the step."""
    blocks_sends: bool = False
    """A pipeline rank computes nothing while it sends; else sends overlap."""
    overlaps_tensor_forward: Share = 0.0
    """Share of a forward pass's products under which tensor collectives make progress, 0..1: of a layout without
    ``async_tensor_parallel``, which says it by itself."""
    overlaps_tensor_backward: Share = 0.0
    """Share of the products of weight gradients under which tensor collectives of the backward pass make progress,
    0..1."""
    gathers_logits: bool = False
    """Every tensor rank gets all logits for the loss; else each keeps its part of the vocabulary."""
    selective_recompute: tuple[RecomputePolicy, ...] = (RecomputePolicy.ALL_BUT_PRODUCTS,)
    """What selective recomputation drops, in words that hold together."""
    gathers_again: bool = False
    """Sequence parallelism keeps its own part of a block's input and gathers the whole again in the backward pass
    (arXiv 2205.05198, section 4.2.2); else the gathered one is kept."""
    fuses_gate: bool = False
    """A gate's activation and its product are one kernel, which keeps its inputs alone; else both results are kept."""
    allocates_gradients: bool = False
    """Gradients have their memory from the start; else from their first backward pass on."""
    fills_buckets: bool = True
    """Gradients that nothing shards are reduced in buckets of ``Layout.gradient_bucket_bytes``; else layer by layer."""
    fp8_implementation: Literal["torchao", "transformer_engine"] = "torchao"
    """Who rounds to 8 bits or fewer; torchao's operations are fused where the layout is compiled."""
    gathers_fp8_activations: bool = False
    """Tensor ranks gather hidden states that are rounded already, where a scale allows it."""
    gathers_fp8_parameters: bool = False
    """Data-parallel ranks gather weights that are rounded already, where a scale allows it."""
    repeats_fp8_products: bool = False
    """Selective recomputation names products by their operation in 16 bits, and so computes those in 8 bits again once
    they are compiled to another."""
    widens_context_gradients: bool = True
    """Context ranks send gradients of keys and values in fp32, in bf16 training too."""
    splits_experts: bool = False
    """Tensor ranks split each expert even where expert ranks hold them (Megatron-LM's expert tensor parallel degree
    equals the tensor degree); else expert ranks hold whole experts."""
    groups_experts: bool = False
    """All experts of a rank multiply side by side in one kernel; else one after the other."""
    shards_whole_experts: bool = True
    """Data-parallel ranks that shard gradients or parameters take whole experts where no expert ranks do, so that more
    ranks than experts leave some without (FSDP2 cuts the first dimension)."""
    dispatch: Dispatch = "all_to_all"
    """How tokens reach their experts: ``all_to_all`` sends a copy to each expert, ``deduplicated`` one to each rank and
    node that needs it (DeepEP, HybridEP), ``all_gather`` all tokens to all."""
    dispatch_waits: bool = True
    """The host reads how many tokens come before it launches what they meet."""
    hides_dispatch: Share = 0.0
    """Share of the dispatch that runs under the computation of another micro-batch, 0..1."""
    expert_imbalance: float = 1.1
    """Tokens of the fullest of ranks that hold one expert each, over the mean."""
    weighs_answers: bool = True
    """Routing weights multiply experts' answers, which are kept for the gradients of the weights; else they multiply
    what the last product reads."""
    routing_traffic: Positive = 1.5
    """Memory traffic of sorting tokens by expert and back, over that of one fused kernel each way."""
    fuses_loss: bool = False
    """Softmax and cross-entropy are one kernel on 16-bit logits, which writes the gradient beside them."""
    keeps_logits: bool = False
    """Logits in 16 bits stay through the loss's backward, as they do in a pipeline; else they are gone."""
    overlaps_data_parallel: Share = 0.2
    """Share of the backward pass under which data-parallel reductions make progress, 0..1."""
    matrix_slowdown: Positive = 1.16
    """Time of matrix products over that of the same shapes in benchmarks of today's libraries."""
    pointwise_traffic: Positive = 1.9
    """Memory traffic of norms, activations and sums, over that of one fused kernel each."""
    cast_traffic: Positive = 1.0
    """Memory traffic of rounding to 8 bits or fewer, over what is counted."""
    unfused_norm_traffic: NonNegative = 13.0
    """Further traffic of a norm composed of elementary operations, in passes over its input."""
    kernel_launch_s: Seconds = 40e-6
    """What the host needs to launch one kernel from the framework's own code."""
    tensor_wait_s: Seconds = 0.0
    """What each step of a tensor group's ring holds the host up while pipeline sends cross nodes; where none do, each
    step that crosses nodes itself."""
    send_wait_s: Seconds = 0.5e-3
    """Rendezvous of the two ends of every pipeline send, beyond the wire."""
    step_overhead_s: Seconds = 5e-3
    """Once a step on every rank: logging, clipping, zeroing, synchronising."""
    unfused_norm_bytes: NonNegative = 5.0
    """What a norm of elementary operations keeps beyond a fused one, per element of its input."""
    math_in_fp32: bool = True
    """The kernel ``math`` is PyTorch's: it keeps in fp32 what it multiplies, each kv head once for every query head,
    and the scores; blocks of a ring keep no scores."""
    scores_alive: NonNegative = 0.0
    """Copies of one layer's attention scores in its backward, where a kernel has them in memory at all."""
    logits_copies: NonNegative = 2.0
    """Copies of the logits in fp32 during the loss's backward, beyond what the forward saved."""
    split_logits_copies: NonNegative = 1.0
    """More of them where tensor ranks split the vocabulary."""
    scatter: NonNegative | None = None
    """Standard deviation of log(measured / predicted step time) beyond what parts and cluster explain; None: that of
    runs like it, where some were compared (``catalog/compared.toml``)."""
    activation_overhead: NonNegative = 0.15
    """Share of activations held beyond what the formulas count."""
    allowance_bytes: Bytes = 2_000_000_000
    """Context, libraries, communicators and workspaces of a process."""

    def __post_init__(self) -> None:
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel", "math")
        if self.expert_imbalance < 1:
            raise InvalidInput("expert_imbalance", self.expert_imbalance, "must be 1 or more", 1.0)
