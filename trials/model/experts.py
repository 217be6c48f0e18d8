"""A mixture of experts in place of a feed-forward block: a router chooses a few experts for each token.

It is dropless and deterministic: every expert processes all tokens that choose it, and the order of sums is fixed.
There is no auxiliary loss, because a trial trains only a few steps on random tokens.

Tensor suffixes: B sequences, S tokens of a sequence, T tokens, N experts, K experts that a token chooses, A the T x K
choices, D hidden size, F expert ffn size of this rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.model import TransformerSpec

# Rows on their way to experts and back: how many go where, and in which order.
#
# Reordering is a gather forward and a gather backward, so equal runs stay equal bit by bit: the backward pass of
# plain indexing adds rows up, which CUDA does in any order.


def histogram(indices: Tensor, num_values: int) -> Tensor:
    """Count how often each value from 0 to ``num_values`` - 1 occurs in a tensor.

    The shape of the result does not depend on the data, as it does for ``torch.bincount``.
    """
    nothing = torch.zeros(num_values, dtype=torch.long, device=indices.device)
    return nothing.scatter_add(0, indices, torch.ones_like(indices))


def count_on_host(counts: Tensor, total: int) -> list[int]:
    """Return counts on the device as a list of integers. The host waits for the device.

    In a dry run, tensors have no values. Then the result is ``total``, divided as evenly as possible.

    Args:
        counts: The counts on the device.
        total: The sum of the counts.
    """
    if isinstance(counts, FakeTensor):
        quotient, remainder = divmod(total, len(counts))
        return [quotient + (index < remainder) for index in range(len(counts))]
    numbers: list[int] = counts.tolist()
    return numbers


def inverse(order: Tensor) -> Tensor:
    """Return the inverse of the permutation ``order``."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


def permuted(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """Return ``rows[order]``, with a deterministic backward pass; the backward pass of plain indexing is not.

    Args:
        rows: The rows.
        order: The permutation.
        back: The inverse of ``order``.
    """
    result: Tensor = _Permuted.apply(rows, order, back)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return result


class _Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return rows[order]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (back,) = ctx.saved_tensors
        return gradient[back], None, None


# The feed-forward block of a dense layer, and of the experts that see every token.
#
# Tensor suffixes: B sequences, S tokens, D hidden size, F ffn size of this rank.


class FeedForward(nn.Module):
    """A dense feed-forward block: SwiGLU (arXiv 2002.05202) if it is gated, otherwise GELU between two matrices."""

    def __init__(self, hidden_size: int, ffn_size: int, *, gated: bool, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, ffn_size, bias=bias) if gated else None
        self.up = nn.Linear(hidden_size, ffn_size, bias=bias)
        self.down = nn.Linear(ffn_size, hidden_size, bias=bias)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return the block's output, which is computed for every token separately."""
        gate_BSF = None if self.gate is None else self.gate(x_BSD)
        out_BSD: Tensor = self.down(activated(gate_BSF, self.up(x_BSD)))
        return out_BSD


def activated(gate: Tensor | None, up: Tensor) -> Tensor:
    """Return the input of the last matrix of a feed-forward block: SwiGLU of ``gate`` and ``up``, or GELU of ``up``.

    It is GELU if ``gate`` is None.
    """
    return functional.gelu(up) if gate is None else functional.silu(gate) * up


Compute = Callable[[Tensor, Tensor], Tensor]
"""Function from rows sorted by expert, and each expert's number of rows, to the outputs of the experts."""

ExpertExchange = Callable[[Tensor, Tensor, Compute], Tensor]
"""Function from x_AD in the order of the experts and counts_N to out_AD; it calls the given function to compute this
rank's experts."""


def _no_exchange(x_AD: Tensor, counts_N: Tensor, compute: Compute) -> Tensor:
    return compute(x_AD, counts_N)


def _itself(parameter: Tensor) -> Tensor:
    return parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalExperts:
    """The experts that one of ``num_ranks`` ranks holds in every layer, and the way in which tokens reach experts."""

    rank: int = 0
    num_ranks: int = 1
    exchange: ExpertExchange = _no_exchange
    """Function that sends tokens to the ranks of their experts."""
    local_part: Callable[[Tensor], Tensor] = _itself
    """Function that returns the part of a parameter's values that this rank holds."""

    def indices(self, num_experts: int) -> range:
        """Return the numbers of the experts that this rank holds. They are consecutive."""
        size = num_experts // self.num_ranks
        return range(self.rank * size, (self.rank + 1) * size)


ALL_EXPERTS = LocalExperts()
"""Setting of a rank that holds all experts."""


class SparseFeedForward(nn.Module):
    """A mixture of experts, which takes the place of a dense feed-forward block.

    A router sends each token to a few routed experts. Each token also goes to all shared experts.

    Source: arXiv 2401.06066.
    """

    def __init__(self, spec: TransformerSpec, experts: MixtureOfExperts, local: LocalExperts) -> None:
        super().__init__()
        width = experts.shared_ffn_size  # beside each other they are one wide block
        self.routed = _Routed(spec, experts, local)
        self.shared = FeedForward(spec.hidden_size, width, gated=spec.gated_mlp, bias=False) if width else None

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return, for every token, the sum of the outputs of its routed experts and of the shared experts."""
        out_BSD: Tensor = self.routed(x_BSD)
        return out_BSD if self.shared is None else out_BSD + self.shared(x_BSD)


class _Routed(nn.Module):
    """A router and its experts, as in Mixtral (arXiv 2401.04088, section 2.1): softmax, top-k, weights that sum to 1.

    A balancing bias (DeepSeek-V3, arXiv 2412.19437, section 2.1.2) influences the choice of experts but not their
    weights. It gets no gradient and stays at its initial 0, because a trial does not update it between steps.
    """

    def __init__(self, spec: TransformerSpec, experts: MixtureOfExperts, local: LocalExperts) -> None:
        super().__init__()
        self.num_chosen = experts.experts_per_token
        self.router = nn.Linear(spec.hidden_size, experts.num_experts, bias=False)
        self.register_buffer("balance", torch.zeros(experts.num_experts) if experts.router_bias else None)
        self.experts = Experts(spec, experts, local)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return the sum of the chosen experts' outputs, each times its routing weight."""
        x_TD = x_BSD.flatten(0, 1)
        weights_TK, chosen_TK = self._route(x_TD)
        chosen_A = chosen_TK.flatten()
        order_A = chosen_A.argsort(stable=True)
        back_A = inverse(order_A)
        counts_N = histogram(chosen_A, self.router.out_features)
        x_AD = x_TD[:, None].expand(-1, self.num_chosen, -1).flatten(0, 1)
        answers_AD = self.experts(permuted(x_AD, order_A, back_A), counts_N)
        answers_TKD = permuted(answers_AD, back_A, order_A).view(*chosen_TK.shape, -1)
        out_TD: Tensor = (answers_TKD * weights_TK[..., None]).sum(1)
        return out_TD.view_as(x_BSD)

    def _route(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the routing weights and the indices of the chosen experts."""
        scores_TN = self.router(x_TD).float().softmax(-1)
        favoured_TN = scores_TN if self.balance is None else scores_TN + self.balance
        chosen_TK = favoured_TN.detach().topk(self.num_chosen, dim=-1).indices
        weights_TK = scores_TN.gather(1, chosen_TK)
        return (weights_TK / weights_TK.sum(-1, keepdim=True)).to(x_TD.dtype), chosen_TK


class Experts(nn.Module):
    """The matrices of a rank's experts. Matrices of one kind are in one tensor, whose first dim is the expert.

    With expert parallelism, the parameters are DTensors over the mesh axis ``expert``. Other parameters are never
    sharded over this axis.
    """

    def __init__(self, spec: TransformerSpec, experts: MixtureOfExperts, local: LocalExperts) -> None:
        super().__init__()
        self.indices = local.indices(experts.num_experts)
        inward = (len(self.indices), experts.expert_ffn_size, spec.hidden_size)
        outward = (len(self.indices), spec.hidden_size, experts.expert_ffn_size)
        self.gate = nn.Parameter(torch.empty(inward)) if spec.gated_mlp else None
        self.up = nn.Parameter(torch.empty(inward))
        self.down = nn.Parameter(torch.empty(outward))
        self._exchange = local.exchange
        self._local_part = local.local_part

    def forward(self, x_AD: Tensor, counts_N: Tensor) -> Tensor:
        """Return the outputs of the experts for rows of tokens. The rows must be sorted by expert.

        Args:
            x_AD: The rows to process, from all ranks.
            counts_N: Number of rows for each expert.
        """
        return self._exchange(x_AD, counts_N, self._compute)

    def _compute(self, x: Tensor, counts: Tensor) -> Tensor:
        """Compute one expert after the other.

        An expert without rows takes part too, so that it gets a gradient of zero.
        """
        up, down = self._local_part(self.up).unbind(), self._local_part(self.down).unbind()
        gate = [None] * len(up) if self.gate is None else self._local_part(self.gate).unbind()
        rows = torch.split(x, count_on_host(counts, total=len(x)))
        return torch.cat([_answer(*expert) for expert in zip(rows, gate, up, down, strict=True)])


def _answer(x_RD: Tensor, gate_FD: Tensor | None, up_FD: Tensor, down_DF: Tensor) -> Tensor:
    gate_RF = None if gate_FD is None else functional.linear(x_RD, gate_FD)
    return functional.linear(activated(gate_RF, functional.linear(x_RD, up_FD)), down_DF)
