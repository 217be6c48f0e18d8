"""Attention of one rank's queries to keys that come block by block.

Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, E head dim. Keys and values of a block have
as many tokens as it has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trials.distributed.context.block_attention import BlockKernel, Rest


class OnlineSoftmax:
    """Attention of this rank's queries to the blocks of keys so far, in fp32; it begins with this rank's own keys."""

    def __init__(self, kernel: BlockKernel, q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor) -> None:
        self._kernel = kernel
        self._q_BHSE = q_BHSE
        output_BHSE, self.log_sum_exp_BHS, self.rest = kernel.forward(q_BHSE, k_BKSE, v_BKSE, True)
        self._output_BHSE = output_BHSE.float()

    def output(self) -> Tensor:
        """output_BHSE in the queries' format."""
        return self._output_BHSE.to(self._q_BHSE.dtype)

    def merge(self, k: Tensor, v: Tensor, *, first_query: int = 0) -> None:
        """Let the queries from ``first_query`` on attend to all of these keys as well.

        What was attended before keeps the weight that its exponentiated scores have in the sum of both.
        """
        rows = slice(first_query, None)
        output, log_sum_exp, self.rest = self._kernel.forward(self._q_BHSE[:, :, rows], k, v, False)
        before = self.log_sum_exp_BHS[..., rows]
        both = torch.logaddexp(before, log_sum_exp)
        old, new = (before - both).exp()[..., None], (log_sum_exp - both).exp()[..., None]
        merged = self._output_BHSE[:, :, rows] * old + output.float() * new
        self._output_BHSE = torch.cat((self._output_BHSE[:, :, :first_query], merged), 2)
        self.log_sum_exp_BHS = torch.cat((self.log_sum_exp_BHS[..., :first_query], both), -1)


class OnlineSoftmaxGradients:
    """Gradients of an ``OnlineSoftmax``, block by block; the queries' are summed up in fp32."""

    def __init__(
        self,
        kernel: BlockKernel,
        gradient_BHSE: Tensor,
        q_BHSE: Tensor,
        output_BHSE: Tensor,
        log_sum_exp_BHS: Tensor,
        rest: Rest,
    ) -> None:
        self._kernel = kernel
        self._rows = gradient_BHSE, q_BHSE, output_BHSE, log_sum_exp_BHS
        self._rest = rest
        self._of_queries_BHSE = torch.zeros_like(q_BHSE, dtype=torch.float32)

    def queries(self) -> Tensor:
        """Gradient of the queries from the blocks so far, in their format."""
        return self._of_queries_BHSE.to(self._rows[1].dtype)

    def own_block(self, k_BKSE: Tensor, v_BKSE: Tensor) -> Tensor:
        """Gradients of this rank's keys and values from its own queries, joined along a new first dim."""
        return self._block(k_BKSE, v_BKSE, causal=True, first_query=0)

    def merged_block(self, k: Tensor, v: Tensor, *, first_query: int = 0) -> Tensor:
        """Gradients of keys and values that the queries from ``first_query`` on attended to, joined along a new dim."""
        return self._block(k, v, causal=False, first_query=first_query)

    def _block(self, k: Tensor, v: Tensor, *, causal: bool, first_query: int) -> Tensor:
        gradient, q, output, log_sum_exp = (rows[:, :, first_query:] for rows in self._rows)
        of_q, of_k, of_v = self._kernel.backward(gradient, q, k, v, output, log_sum_exp, self._rest, causal)
        self._of_queries_BHSE[:, :, first_query:] += of_q
        return torch.stack((of_k, of_v)).float()
