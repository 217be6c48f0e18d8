"""TransformerSpec: a decoder-only transformer by its shapes, with exact parameter and FLOP counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotuner.domain import check
from autotuner.errors import InvalidInput

__all__ = ["LatentAttention", "MixtureOfExperts", "TransformerSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """The expert part of a sparse model's feed-forward blocks.

    Attributes:
        num_experts: Routed experts per sparse layer.
        experts_per_token: Routed experts that see each token (top-k).
        expert_ffn_size: Inner width of one expert.
        num_shared_experts: Experts that see every token.
        num_dense_layers: Leading layers with an ordinary feed-forward block.
        router_bias: The router has a balancing bias per expert (DeepSeek-V3).
        expert_bias: Matrices of routed experts carry biases (GPT-OSS).
        capacity_factor: An expert takes at most so many times its even share of the tokens, the rest are dropped
            (Switch Transformer, arXiv 2101.03961, section 2.2); None drops nothing.
        pads_to_capacity: Experts with fewer tokens are filled up, so that all compute the same shapes.
    """

    num_experts: int
    experts_per_token: int
    expert_ffn_size: int
    num_shared_experts: int = 0
    num_dense_layers: int = 0
    router_bias: bool = False
    expert_bias: bool = False
    capacity_factor: float | None = None
    pads_to_capacity: bool = False

    def __post_init__(self) -> None:
        check.positive(self, "num_experts", "experts_per_token", "expert_ffn_size")
        check.non_negative(self, "num_shared_experts", "num_dense_layers")
        if self.capacity_factor is not None:
            check.positive(self, "capacity_factor")
        elif self.pads_to_capacity:
            raise InvalidInput("pads_to_capacity", True, "needs a capacity_factor", False)
        if self.experts_per_token > self.num_experts:
            rule = f"must not exceed num_experts ({self.num_experts})"
            raise InvalidInput("experts_per_token", self.experts_per_token, rule, self.num_experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Ranks of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Attributes:
        query_rank: Width of a compressed query; None where queries are not compressed (DeepSeek-V2-Lite).
        key_value_rank: Width of what keys and values are made of.
        rope_head_dim: Rotary part of a query head, and of the one key that all heads share.
        value_head_dim: Width of one value head.
    """

    query_rank: int | None = None
    key_value_rank: int
    rope_head_dim: int
    value_head_dim: int

    def __post_init__(self) -> None:
        check.positive(self, "key_value_rank", "rope_head_dim", "value_head_dim")
        if self.query_rank is not None:
            check.positive(self, "query_rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSpec:
    """A decoder-only transformer by its shapes.

    Attributes:
        head_dim: Width of one query and key head (with latent attention: without its rotary part).
        ffn_size: Inner width of a dense feed-forward block.
        gated_mlp: Three matrices (SwiGLU) instead of two.
        tied_embeddings: The output projection is the input embedding.
        norm: ``layernorm`` carries a bias, ``rmsnorm`` does not.
        attention_bias: Which attention projections carry a bias.
        num_learned_positions: Rows of a learned position table; 0 for rotary positions.
        attention_window: Keys before a query that it sees in a windowed layer.
        num_windowed_layers: Layers whose attention has that window.
        qk_norm: Queries and keys are normalised per head (Qwen3).
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    attention_bias: Literal["none", "qkv", "all"] = "none"
    mlp_bias: bool = False
    num_learned_positions: int = 0
    qk_norm: bool = False
    attention_window: int = 0
    num_windowed_layers: int = 0
    experts: MixtureOfExperts | None = None
    latent_attention: LatentAttention | None = None

    def __post_init__(self) -> None:
        check.positive(
            self,
            *("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_size", "vocab_size"),
        )
        check.non_negative(self, "num_learned_positions", "attention_window", "num_windowed_layers")
        if self.num_windowed_layers > (self.num_layers if self.attention_window else 0):
            rule = f"must not exceed num_layers ({self.num_layers}), and needs an attention_window"
            raise InvalidInput("num_windowed_layers", self.num_windowed_layers, rule, 0)
        check.one_of("norm", self.norm, ("rmsnorm", "layernorm"))
        check.one_of("attention_bias", self.attention_bias, ("none", "qkv", "all"))
        check.divides("num_kv_heads", self.num_kv_heads, self.num_heads, "num_heads")
        if self.experts is not None and self.experts.num_dense_layers > self.num_layers:
            rule = f"must not exceed num_layers ({self.num_layers})"
            raise InvalidInput("experts.num_dense_layers", self.experts.num_dense_layers, rule, self.num_layers)

    # ---------------------------------------------------------------- widths
    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        rope = self.latent_attention.rope_head_dim if self.latent_attention else 0
        return self.num_heads * (self.head_dim + rope)

    @property
    def attention_output_size(self) -> int:
        """Width of all value heads as the output projection reads them."""
        per_head = self.latent_attention.value_head_dim if self.latent_attention else self.head_dim
        return self.num_heads * per_head

    @property
    def key_value_size(self) -> int:
        """Width of keys and values together."""
        if self.latent_attention:
            return self.query_size + self.attention_output_size
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def num_sparse_layers(self) -> int:
        """Layers whose feed-forward block is a mixture of experts."""
        return self.num_layers - self.experts.num_dense_layers if self.experts else 0

    # ---------------------------------------------------------------- matrices: parameters that multiply
    @property
    def attention_matrix_parameters(self) -> int:
        """Elements of the projection matrices of one attention block."""
        output = self.attention_output_size * self.hidden_size
        latent = self.latent_attention
        if latent is None:
            return self.hidden_size * (self.query_size + self.key_value_size) + output
        rank = latent.query_rank
        query = (self.hidden_size + self.query_size) * rank if rank else self.hidden_size * self.query_size
        down = self.hidden_size * (latent.key_value_rank + latent.rope_head_dim)
        up = latent.key_value_rank * self.num_heads * (self.head_dim + latent.value_head_dim)
        return query + down + up + output

    @property
    def mlp_matrix_parameters(self) -> int:
        """Elements of the matrices of one dense feed-forward block."""
        return self._matrices_per_mlp * self.hidden_size * self.ffn_size

    @property
    def expert_matrix_parameters(self) -> int:
        """Elements of the matrices of one expert; 0 in a dense model."""
        return self._matrices_per_mlp * self.hidden_size * self.experts.expert_ffn_size if self.experts else 0

    @property
    def router_matrix_parameters(self) -> int:
        """Elements of one router matrix; 0 in a dense model."""
        return self.hidden_size * self.experts.num_experts if self.experts else 0

    @property
    def embedding_parameters(self) -> int:
        """Elements of the token table; the output projection has as many unless it is the same tensor."""
        return self.vocab_size * self.hidden_size

    @property
    def _matrices_per_mlp(self) -> int:
        return 3 if self.gated_mlp else 2

    # ---------------------------------------------------------------- totals
    @property
    def num_parameters(self) -> int:
        """Every trainable element and routing bias, once; exact against published checkpoints."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        positions = self.num_learned_positions * self.hidden_size
        return tables + positions + self.num_layer_parameters + self._norm_parameters(self.hidden_size)

    @property
    def num_layer_parameters(self) -> int:
        """Parameters of all layers, without embeddings, output projection and final norm."""
        shared = self.num_layers * (self._attention_parameters + 2 * self._norm_parameters(self.hidden_size))
        num_dense = self.num_layers - self.num_sparse_layers
        return shared + num_dense * self._dense_mlp_parameters + self.num_sparse_layers * self._sparse_mlp_parameters

    @property
    def num_expert_parameters(self) -> int:
        """Parameters of all routed experts: what the expert-parallel group splits."""
        if self.experts is None:
            return 0
        each = self.expert_matrix_parameters + self._expert_bias_parameters
        return self.num_sparse_layers * self.experts.num_experts * each

    @property
    def num_active_parameters(self) -> int:
        """Those of ``num_parameters`` that one token meets: of the routed experts only those that it is sent to."""
        if self.experts is None:
            return self.num_parameters
        num_idle = self.experts.num_experts - self.experts.experts_per_token
        return self.num_parameters - num_idle * (self.num_expert_parameters // self.experts.num_experts)

    @property
    def num_active_matrix_parameters(self) -> int:
        """Matrix elements that multiply each token: layers and output projection, of the experts only the chosen."""
        return self.num_active_layer_matrix_parameters + self.embedding_parameters

    @property
    def num_active_layer_matrix_parameters(self) -> int:
        """The part of ``num_active_matrix_parameters`` that lies in the layers."""
        total = self.num_layers * self.attention_matrix_parameters
        total += (self.num_layers - self.num_sparse_layers) * self.mlp_matrix_parameters
        if self.experts:
            active = self.experts.experts_per_token + self.experts.num_shared_experts
            total += self.num_sparse_layers * (active * self.expert_matrix_parameters + self.router_matrix_parameters)
        return total

    def attention_flop_per_token(self, seq_len: int) -> int:
        """Score and value products of one forward pass, all layers, full (not causal-halved) attention.

        Source: PaLM, arXiv 2204.02311, appendix B (2 of its 6 parts are the forward pass).
        """
        return 2 * self.num_layers * seq_len * (self.query_size + self.attention_output_size)

    def model_flop_per_token(self, seq_len: int) -> int:
        """Forward and backward FLOP that the mathematics needs, per token; recomputation is not counted.

        6 per matrix element (the input table is looked up, not multiplied) plus full attention,
        12 L h s for a model whose heads span the hidden size.

        Source: PaLM, arXiv 2204.02311, appendix B. Checked against torch's FlopCounterMode in tests/trials.
        """
        return 6 * self.num_active_matrix_parameters + 3 * self.attention_flop_per_token(seq_len)

    # ---------------------------------------------------------------- small change
    def _norm_parameters(self, width: int) -> int:
        return width * (2 if self.norm == "layernorm" else 1)

    @property
    def _attention_parameters(self) -> int:
        bias = 0
        if self.attention_bias != "none":
            bias += self.query_size + self.key_value_size
        if self.attention_bias == "all":
            bias += self.hidden_size
        norms = 2 * self._norm_parameters(self.head_dim) if self.qk_norm else 0
        if self.latent_attention:
            latent = self.latent_attention
            norms += self._norm_parameters(latent.query_rank or 0) + self._norm_parameters(latent.key_value_rank)
        return self.attention_matrix_parameters + bias + norms

    @property
    def _dense_mlp_parameters(self) -> int:
        inner = self.ffn_size * (2 if self.gated_mlp else 1)
        return self.mlp_matrix_parameters + (inner + self.hidden_size if self.mlp_bias else 0)

    @property
    def _sparse_mlp_parameters(self) -> int:
        if self.experts is None:
            return 0
        num_experts = self.experts.num_experts + self.experts.num_shared_experts
        bias = self.experts.num_experts * (self.experts.router_bias + self._expert_bias_parameters)
        return num_experts * self.expert_matrix_parameters + self.router_matrix_parameters + bias

    @property
    def _expert_bias_parameters(self) -> int:
        """Biases of one routed expert."""
        if self.experts is None or not self.experts.expert_bias:
            return 0
        return self.experts.expert_ffn_size * (2 if self.gated_mlp else 1) + self.hidden_size
