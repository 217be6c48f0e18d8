"""The feed-forward block of a dense layer, and of the experts that see every token.

Tensor suffixes: B sequences, S tokens, D hidden size, F ffn size of this rank.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202) where it is gated, GELU between two matrices where not."""

    def __init__(self, hidden_size: int, ffn_size: int, *, gated: bool, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, ffn_size, bias=bias) if gated else None
        self.up = nn.Linear(hidden_size, ffn_size, bias=bias)
        self.down = nn.Linear(ffn_size, hidden_size, bias=bias)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Transform every token by itself."""
        gate_BSF = None if self.gate is None else self.gate(x_BSD)
        out_BSD: Tensor = self.down(activated(gate_BSF, self.up(x_BSD)))
        return out_BSD


def activated(gate: Tensor | None, up: Tensor) -> Tensor:
    """What the last matrix reads."""
    return functional.gelu(up) if gate is None else functional.silu(gate) * up
