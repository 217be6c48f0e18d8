"""Blocks of a transformer layer that not every model has: experts, latent attention, linear attention."""

from __future__ import annotations

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, CountFromZero, Positive, value

_CHUNK = 64
"""Tokens of a chunk of linear attention: as flash-linear-attention and transformers 5.23 take them."""


@value
class MixtureOfExperts:
    """The expert part of a sparse model's feed-forward blocks."""

    num_experts: Count
    """Routed experts per sparse layer."""
    experts_per_token: Count
    """Routed experts that see each token (top-k)."""
    expert_ffn_size: Count
    """Inner width of one expert."""
    num_shared_experts: CountFromZero = 0
    """Experts that see every token."""
    shared_expert_ffn_size: CountFromZero = 0
    """Inner width of one of these; 0: as wide as a routed one."""
    shared_expert_gate: bool = False
    """What they answer is weighed by a sigmoid of the token (Qwen2-MoE)."""
    num_dense_layers: CountFromZero = 0
    """Leading layers with an ordinary feed-forward block."""
    sparse_layer_interval: Count = 1
    """Behind these, layers whose number, counted from 1, is a multiple of it are sparse, all others dense (2 in Llama 4
    Maverick)."""
    router_bias: bool = False
    """The router has a bias per expert: for balance (DeepSeek-V3), or as linear modules have (GPT-OSS)."""
    expert_bias: bool = False
    """Matrices of routed experts carry biases (GPT-OSS)."""
    capacity_factor: Positive | None = None
    """An expert takes at most so many times its even share of the tokens, the rest are dropped (Switch Transformer,
    arXiv 2101.03961, section 2.2); None drops nothing."""
    pads_to_capacity: bool = False
    """Experts with fewer tokens are filled up, so that all compute the same shapes."""

    def __post_init__(self) -> None:
        if self.capacity_factor is None and self.pads_to_capacity:
            raise InvalidInput("pads_to_capacity", True, "needs a capacity_factor", False)
        if self.experts_per_token > self.num_experts:
            rule = f"must not exceed num_experts ({self.num_experts})"
            raise InvalidInput("experts_per_token", self.experts_per_token, rule, self.num_experts)

    @property
    def shared_ffn_size(self) -> int:
        """Inner width of all shared experts together; 0 without any."""
        return self.num_shared_experts * (self.shared_expert_ffn_size or self.expert_ffn_size)

    def is_sparse(self, layer: int) -> bool:
        """Whether the layer of this number, counted from 0, has experts."""
        return layer >= self.num_dense_layers and (layer + 1) % self.sparse_layer_interval == 0

    def num_sparse(self, num_layers: int) -> int:
        """How many of the first layers have experts."""
        dense = min(self.num_dense_layers, num_layers)
        return num_layers // self.sparse_layer_interval - dense // self.sparse_layer_interval


@value
class LatentAttention:
    """Ranks of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    query_rank: Count | None = None
    """Width of a compressed query; None where queries are not compressed (DeepSeek-V2-Lite)."""
    key_value_rank: Count
    """Width of what keys and values are made of."""
    rope_head_dim: Count
    """Rotary part of a query head, and of the one key that all heads share."""
    value_head_dim: Count
    """Width of one value head."""
    indexer_heads: CountFromZero = 0
    """Heads of an indexer, which says which keys a query sees (DeepSeek-V3.2, arXiv 2512.02556); 0: it sees all."""
    indexer_head_dim: CountFromZero = 0
    """Width of one of these heads, and of the one key that they share."""

    def __post_init__(self) -> None:
        if self.query_rank is None and self.indexer_heads:
            raise InvalidInput("indexer_heads", self.indexer_heads, "needs a query_rank, of which they are made", 0)

    @property
    def indexer_size(self) -> int:
        """Width of all heads of the indexer."""
        return self.indexer_heads * self.indexer_head_dim

    @property
    def indexer_key_size(self) -> int:
        """Width of what the indexer makes of a hidden state: a key, and a weight for each head."""
        return self.indexer_head_dim + self.indexer_heads if self.indexer_heads else 0


@value
class LinearAttention:
    """A layer that keeps one matrix per head in the place of keys and values: the gated delta rule.

    Yang et al., arXiv 2412.06464, with the projections of Qwen3-Next: queries, keys, values and an output gate, two
    numbers per value head that say what is written and forgotten, and a short convolution over the tokens.
    """

    num_key_heads: Count
    """Heads of queries and keys."""
    num_value_heads: Count
    """Heads of values: each keeps a matrix."""
    key_head_dim: Count
    """Width of a query and a key."""
    value_head_dim: Count
    """Width of a value."""
    convolution_width: Count = 4
    """Tokens that the convolution sees."""
    gate_rank: CountFromZero = 0
    """Width of what gates and rates of forgetting are made of, one for each element of a value (Kimi Linear, arXiv
    2510.26692); 0: a gate from the token itself, and a rate per head."""

    @property
    def convolved_size(self) -> int:
        """Width of queries, keys and values, which the convolution mixes over neighbouring tokens."""
        return 2 * self.num_key_heads * self.key_head_dim + self.output_size

    @property
    def output_size(self) -> int:
        """Width of all value heads, as the output projection reads them."""
        return self.num_value_heads * self.value_head_dim

    @property
    def projected_size(self) -> int:
        """Width of all that a token is projected to: what is convolved, the gate, and two numbers per value head.

        With a gate rank: one number per value head, and what gates and rates are made of.
        """
        if self.gate_rank:
            return self.convolved_size + self.num_value_heads + 2 * self.gate_rank
        return self.convolved_size + self.output_size + 2 * self.num_value_heads

    @property
    def gate_matrix_parameters(self) -> int:
        """Elements of the matrices that make gates and rates of what has the gate rank."""
        return 2 * self.gate_rank * self.output_size

    @property
    def num_other_parameters(self) -> int:
        """Elements beside the matrices: convolution, a rate per value head, biases of rates, the norm of a head."""
        biases = self.output_size if self.gate_rank else self.num_value_heads
        return self.convolution_width * self.convolved_size + self.num_value_heads + biases + self.value_head_dim

    @property
    def core_keys(self) -> float:
        """Keys before a query of an attention core with as many FLOP as the recurrence in chunks of ``_CHUNK`` tokens.

        In a chunk keys meet keys, both factors of what is written are solved for, queries meet keys, and scores meet
        values; over chunks, the matrix of a head is read twice and written once (arXiv 2412.06464, section 3.3).
        """
        keys, values = self.key_head_dim, self.value_head_dim
        return (_CHUNK * (3 * keys + 2 * values) + 3 * keys * values) / (keys + values)

    @property
    def core_flop_per_token(self) -> int:
        """Forward FLOP of the recurrence: each head's matrix is read twice and written once.

        Source: arXiv 2412.06464, equation 10, token after token.
        """
        return 6 * self.num_value_heads * self.key_head_dim * self.value_head_dim
