"""Blocks of a transformer layer that only some models have: experts, latent attention, linear attention."""

from __future__ import annotations

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, CountFromZero, Positive, value

_CHUNK = 64
"""Number of tokens in a chunk of linear attention, as in flash-linear-attention and transformers 5.23."""


@value
class MixtureOfExperts:
    """The mixture of experts in a sparse model: the number and size of its experts, and the layers that have it.

    Example:
        >>> experts = MixtureOfExperts(num_experts=64, experts_per_token=6, expert_ffn_size=1408, num_dense_layers=1)
        >>> experts.is_sparse(0), experts.num_sparse(27)
        (False, 26)
    """

    num_experts: Count
    """Number of routed experts per sparse layer."""
    experts_per_token: Count
    """Number of routed experts that each token is sent to (top-k)."""
    expert_ffn_size: Count
    """Inner width of one expert."""
    num_shared_experts: CountFromZero = 0
    """Number of experts that see every token."""
    shared_expert_ffn_size: CountFromZero = 0
    """Inner width of a shared expert; 0: as wide as a routed one."""
    shared_expert_gate: bool = False
    """True if the output of shared experts is multiplied by a sigmoid gate of the token (Qwen2-MoE)."""
    num_dense_layers: CountFromZero = 0
    """Number of leading layers with an ordinary feed-forward block."""
    sparse_layer_interval: Count = 1
    """Interval of sparse layers: after the leading dense layers, a layer is sparse if its number, counted from 1, is a
    multiple of this (2 in Llama 4 Maverick)."""
    router_bias: bool = False
    """True if the router has a bias per expert, either to balance the load (DeepSeek-V3) or as an ordinary linear
    module (GPT-OSS)."""
    expert_bias: bool = False
    """True if the matrices of routed experts have biases (GPT-OSS)."""
    capacity_factor: Positive | None = None
    """Maximum number of tokens of an expert, as a multiple of its even share. Further tokens are dropped (Switch
    Transformer, arXiv 2101.03961, section 2.2). None drops no token."""
    pads_to_capacity: bool = False
    """True if experts with fewer tokens than the maximum are padded, so that all experts compute the same shapes."""

    def __post_init__(self) -> None:
        if self.capacity_factor is None and self.pads_to_capacity:
            raise InvalidInput(
                "pads_to_capacity",
                True,
                "needs a capacity_factor, because experts are padded to the capacity that it sets",
                False,
            )
        if self.experts_per_token > self.num_experts:
            rule = f"must not exceed num_experts ({self.num_experts})"
            raise InvalidInput("experts_per_token", self.experts_per_token, rule, self.num_experts)

    @property
    def shared_ffn_size(self) -> int:
        """The inner width of all shared experts together; 0 if there are none."""
        return self.num_shared_experts * (self.shared_expert_ffn_size or self.expert_ffn_size)

    def is_sparse(self, layer: int) -> bool:
        """Return True if the feed-forward block of this layer, counted from 0, is a mixture of experts."""
        return layer >= self.num_dense_layers and (layer + 1) % self.sparse_layer_interval == 0

    def num_sparse(self, num_layers: int) -> int:
        """Return how many of the first ``num_layers`` layers have a mixture of experts."""
        dense = min(self.num_dense_layers, num_layers)
        return num_layers // self.sparse_layer_interval - dense // self.sparse_layer_interval


@value
class LatentAttention:
    """The sizes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    query_rank: Count | None = None
    """Width of a compressed query; None if queries are not compressed (DeepSeek-V2-Lite)."""
    key_value_rank: Count
    """Width of the compressed vector that keys and values are computed from."""
    rope_head_dim: Count
    """Width of the rotary part of a query head, and of the one rotary key that all heads share."""
    value_head_dim: Count
    """Width of one value head."""
    indexer_heads: CountFromZero = 0
    """Number of heads of an indexer, which selects the keys that a query sees (DeepSeek-V3.2, arXiv 2512.02556); 0: a
    query sees all keys."""
    indexer_head_dim: CountFromZero = 0
    """Width of one indexer head, and of the one key that all indexer heads share."""

    def __post_init__(self) -> None:
        if self.query_rank is None and self.indexer_heads:
            raise InvalidInput(
                "indexer_heads",
                self.indexer_heads,
                "needs a query_rank above 0, because the indexer's heads are computed from the compressed queries",
                0,
            )

    @property
    def indexer_size(self) -> int:
        """The width of all indexer heads together. The indexer selects the keys that each query sees."""
        return self.indexer_heads * self.indexer_head_dim

    @property
    def indexer_key_size(self) -> int:
        """The width of the indexer's projection of a token's hidden state: one key, and one weight per indexer head."""
        return self.indexer_head_dim + self.indexer_heads if self.indexer_heads else 0


@value
class LinearAttention:
    """A linear attention layer (gated delta rule), which keeps one matrix per head instead of all keys and values.

    Yang et al., arXiv 2412.06464, with the projections of Qwen3-Next: queries, keys, values and an output gate, two
    numbers per value head that control how much is written and forgotten, and a short convolution over the tokens.
    """

    num_key_heads: Count
    """Number of heads of queries and keys."""
    num_value_heads: Count
    """Number of heads of values. Each head keeps a state matrix."""
    key_head_dim: Count
    """Width of a query and a key."""
    value_head_dim: Count
    """Width of a value."""
    convolution_width: Count = 4
    """Number of tokens that the causal convolution reads."""
    gate_rank: CountFromZero = 0
    """Width of the low-rank vector that gates and forgetting rates are computed from, with one rate per element of a
    value (Kimi Linear, arXiv 2510.26692); 0: gates are computed from the token itself, with one rate per head."""

    @property
    def convolved_size(self) -> int:
        """The width of queries, keys and values together, which the convolution mixes over neighbouring tokens."""
        return 2 * self.num_key_heads * self.key_head_dim + self.output_size

    @property
    def output_size(self) -> int:
        """The width of all value heads together, which is the input of the output projection."""
        return self.num_value_heads * self.value_head_dim

    @property
    def projected_size(self) -> int:
        """The width of all projections of a token: the convolved part, the gate, and two numbers per value head.

        If ``gate_rank`` is above 0, gates and forgetting rates come from smaller projections. Then the projections are
        the convolved part, one number per value head, and two vectors with ``gate_rank`` elements.
        """
        if self.gate_rank:
            return self.convolved_size + self.num_value_heads + 2 * self.gate_rank
        return self.convolved_size + self.output_size + 2 * self.num_value_heads

    @property
    def gate_matrix_parameters(self) -> int:
        """The number of elements of the matrices that make gates and forgetting rates from ``gate_rank`` numbers."""
        return 2 * self.gate_rank * self.output_size

    @property
    def num_other_parameters(self) -> int:
        """The number of parameters outside matrices: convolution, forgetting rates with biases, the norm of a head."""
        biases = self.output_size if self.gate_rank else self.num_value_heads
        return self.convolution_width * self.convolved_size + self.num_value_heads + biases + self.value_head_dim

    @property
    def core_keys(self) -> float:
        """The number of keys at which ordinary attention needs as many FLOP per query as linear attention's recurrence.

        The recurrence is counted chunk by chunk, as kernels compute it. In each chunk, a kernel multiplies keys by
        keys, solves for the two matrices of the update, and multiplies queries by keys and scores by values. From chunk
        to chunk, it reads the matrix of a head twice and writes it once (arXiv 2412.06464, section 3.3).
        """
        keys, values = self.key_head_dim, self.value_head_dim
        return (_CHUNK * (3 * keys + 2 * values) + 3 * keys * values) / (keys + values)

    @property
    def core_flop_per_token(self) -> int:
        """The forward FLOP per token of the recurrence, which reads the matrix of each head twice and writes it once.

        Source: arXiv 2412.06464, equation 10, token after token.
        """
        return 6 * self.num_value_heads * self.key_head_dim * self.value_head_dim
