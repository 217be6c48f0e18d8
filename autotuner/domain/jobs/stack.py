"""Stack: the training software that runs a layout."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.domain import check
from autotuner.domain.jobs.recompute_policy import RecomputePolicy

__all__ = ["Stack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What a training framework keeps, fuses, overlaps and waits for; layouts of one stack share it.

    The defaults are those of PyTorch as the trial job runs it. The catalog has others, with their sources.

    Attributes:
        sums_gradients_in_fp32: In mixed precision too.
        balances_stages: Layers are dealt so that the stage with the output projection has fewer; else evenly.
        keeps_receive_buffers: A pipeline rank holds a receive buffer for every micro-batch all through the step.
        blocks_sends: A pipeline rank computes nothing while it sends; else sends overlap.
        hides_tensor_backward: Tensor collectives of the backward run under the products of weight gradients.
        gathers_logits: Every tensor rank gets all logits for the loss; else each keeps its part of the vocabulary.
        selective_recompute: What selective recomputation drops, in words that hold together.
        fills_buckets: Gradients that nothing shards are reduced in buckets of ``Layout.gradient_bucket_bytes``; else
            layer by layer.
        widens_context_gradients: Context ranks send gradients of keys and values in fp32, in bf16 training too.
        fuses_loss: Softmax and cross-entropy are one kernel on 16-bit logits, which writes the gradient beside them.
        overlaps_data_parallel: Share of the backward pass under which data-parallel reductions make progress, 0..1.
        matrix_slowdown: Time of matrix products over that of the same shapes in benchmarks of today's libraries.
        pointwise_traffic: Memory traffic of norms, activations and sums, over that of one fused kernel each.
        unfused_norm_traffic: Further traffic of a norm composed of elementary operations, in passes over its input.
        kernel_launch_s: What the host needs to launch one kernel from the framework's own code.
        tensor_wait_s: What each step of a tensor group's ring holds the host up while pipeline sends cross nodes.
        send_wait_s: Rendezvous of the two ends of every pipeline send, beyond the wire.
        step_overhead_s: Once a step on every rank: logging, clipping, zeroing, synchronising.
        unfused_norm_bytes: What a norm of elementary operations keeps beyond a fused one, per element of its input.
        scores_alive: Copies of one layer's attention scores in its backward, where a kernel has them in memory at all.
        logits_copies: Copies of the logits in fp32 during the loss's backward, beyond what the forward saved.
        scatter: Standard deviation of log(measured / predicted step time) on published sheets that were left out of the
            fit, beyond what the errors of the parts explain; None where no run on this software was compared.
        activation_overhead: Share of activations held beyond what the formulas count.
        allowance_bytes: Context, libraries, communicators and workspaces of a process.
    """

    name: str = "torch"
    sums_gradients_in_fp32: bool = False
    balances_stages: bool = False
    keeps_receive_buffers: bool = True
    blocks_sends: bool = False
    hides_tensor_backward: bool = False
    gathers_logits: bool = False
    selective_recompute: tuple[RecomputePolicy, ...] = (RecomputePolicy.ALL_BUT_PRODUCTS,)
    fills_buckets: bool = True
    widens_context_gradients: bool = True
    fuses_loss: bool = False
    overlaps_data_parallel: float = 0.2
    matrix_slowdown: float = 1.16
    pointwise_traffic: float = 1.9
    unfused_norm_traffic: float = 13.0
    kernel_launch_s: float = 40e-6
    tensor_wait_s: float = 0.0
    send_wait_s: float = 0.5e-3
    step_overhead_s: float = 5e-3
    unfused_norm_bytes: float = 5.0
    scores_alive: float = 0.0
    logits_copies: float = 2.0
    scatter: float | None = None
    activation_overhead: float = 0.15
    allowance_bytes: int = 2_000_000_000

    def __post_init__(self) -> None:
        check.fraction(self, "overlaps_data_parallel")
        if self.scatter is not None:
            check.non_negative(self, "scatter")
        check.positive(self, "matrix_slowdown", "pointwise_traffic")
        check.non_negative(
            self,
            "unfused_norm_traffic",
            "kernel_launch_s",
            "tensor_wait_s",
            "send_wait_s",
            "step_overhead_s",
            "unfused_norm_bytes",
            "scores_alive",
            "logits_copies",
            "activation_overhead",
            "allowance_bytes",
        )
