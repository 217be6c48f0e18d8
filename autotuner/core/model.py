"""Model: a transformer by the shapes of its layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, CountFromZero, nearest_divisor, value
from autotuner.core.workload import Workload

Norm = Literal["rmsnorm", "layernorm", "layernorm_without_bias", "layernorm_without_weights"]
"""Kinds of norms. ``rmsnorm`` has weights; ``layernorm`` has weights and biases, as in torch's modules."""

_NORM_PARAMETERS: dict[Norm, int] = {
    "rmsnorm": 1,
    "layernorm": 2,
    "layernorm_without_bias": 1,
    "layernorm_without_weights": 0,
}
"""Number of parameters of a norm per element of its width."""


@value
class TransformerSpec:
    """A decoder-only transformer model, described by the shapes of its parts.

    Raises:
        InvalidInput: Numbers of layers, heads and norms contradict each other.

    Example:
        >>> from autotuner.catalog.models import load_model
        >>> model = load_model("llama-3.1-8b")
        >>> model.num_layers, model.num_parameters
        (32, 8030261248)
    """

    name: str
    """Name of the model in answers."""
    num_layers: Count
    """Number of layers. Each has attention (or a replacement of it) and a feed-forward block."""
    hidden_size: Count
    """Width of a token's hidden state."""
    num_heads: Count
    """Number of query heads of a layer."""
    num_kv_heads: Count
    """Number of key and value heads; equal to ``num_heads`` without grouped queries."""
    head_dim: Count
    """Width of one query and key head. With latent attention, this is the width without the rotary part."""
    ffn_size: Count
    """Inner width of a dense feed-forward block."""
    vocab_size: Count
    """Number of rows of the token table, including padding."""
    gated_mlp: bool = True
    """True if feed-forward blocks have three matrices (SwiGLU) instead of two."""
    tied_embeddings: bool = False
    """True if the output projection is the input embedding."""
    norm: Norm = "rmsnorm"
    """Kind of all norms, except norms of queries and keys that are described separately."""
    num_norms_per_layer: int = 2
    """Number of norms per layer. 2: one before or after each block; 4: before and after each block (Gemma 2); 1:
    parallel blocks share one (Falcon 7B, Command R)."""
    parallel_blocks: bool = False
    """True if attention and feed-forward block of a layer read the same hidden state, and their outputs are added to it
    together (GPT-J)."""
    embedding_norm: bool = False
    """True if embedded tokens are normalised (BLOOM)."""
    attention_bias: Literal["none", "qkv", "all"] = "none"
    """Attention projections that have a bias: none; queries, keys and values; or also the output projection."""
    attention_output_gate: bool = False
    """True if the output of attention heads is multiplied by a sigmoid gate of the same width (Qwen3-Next)."""
    attention_sinks: bool = False
    """True if the softmax has one additional learned score per head, an attention sink (GPT-OSS)."""
    mlp_bias: bool = False
    """True if the matrices of dense feed-forward blocks have biases."""
    output_bias: bool = False
    """True if the output projection has a bias (Phi-3.5-MoE)."""
    num_learned_positions: CountFromZero = 0
    """Number of rows of a learned position table; 0 for rotary positions."""
    qk_norm: bool = False
    """True if queries and keys are normalised, each head separately with the same weights (Qwen3)."""
    qk_norm_of_all_heads: bool = False
    """True if the weights of the norm of queries and keys span all heads together (OLMo 2)."""
    attention_window: CountFromZero = 0
    """Number of keys that a query sees in a windowed layer."""
    num_windowed_layers: CountFromZero = 0
    """Number of layers that have the window ``attention_window``."""
    experts: MixtureOfExperts | None = None
    """Mixture of experts of sparse layers; None in a dense model."""
    latent_attention: LatentAttention | None = None
    """Widths of compressed queries, keys and values; None if they are not compressed."""
    linear_attention: LinearAttention | None = None
    """Shapes of linear attention, in layers that keep no keys and values; None if there are no such layers."""
    num_linear_layers: CountFromZero = 0
    """Number of layers with linear attention. They are never windowed."""
    approximations: tuple[str, ...] = ()
    """Differences between the model that was read and the model that is computed with, and their effects, as sentences
    without full stops."""

    def __post_init__(self) -> None:
        if self.num_linear_layers > (self.num_layers if self.linear_attention else 0):
            rule = f"must not exceed num_layers ({self.num_layers}), and must be 0 without linear_attention"
            raise InvalidInput(
                "num_linear_layers", self.num_linear_layers, rule, self.num_layers if self.linear_attention else 0
            )
        if self.num_windowed_layers > (self.num_attending_layers if self.attention_window else 0):
            rule = (
                f"must be at most {self.num_attending_layers}, the number of layers without linear attention, and must "
                "be 0 without attention_window"
            )
            nearest = self.num_attending_layers if self.attention_window else 0
            raise InvalidInput("num_windowed_layers", self.num_windowed_layers, rule, nearest)
        if self.qk_norm_of_all_heads and not self.qk_norm:
            raise InvalidInput(
                "qk_norm_of_all_heads",
                True,
                "needs qk_norm to be true, because it says over which elements queries and keys are normalised",
                False,
            )
        if self.num_norms_per_layer not in (1, 2, 4):
            nearest = 2 if self.num_norms_per_layer <= 3 else 4
            raise InvalidInput("num_norms_per_layer", self.num_norms_per_layer, "must be 1, 2 or 4", nearest)
        if self.num_norms_per_layer == 1 and not self.parallel_blocks:
            raise InvalidInput(
                "num_norms_per_layer",
                1,
                "needs parallel_blocks to be true, because only parallel blocks share one norm",
                2,
            )
        if self.num_heads % self.num_kv_heads:
            near = nearest_divisor(self.num_kv_heads, self.num_heads)
            raise InvalidInput("num_kv_heads", self.num_kv_heads, f"must divide num_heads ({self.num_heads})", near)
        if self.experts is not None and self.experts.num_dense_layers > self.num_layers:
            rule = f"must not exceed num_layers ({self.num_layers})"
            raise InvalidInput("experts.num_dense_layers", self.experts.num_dense_layers, rule, self.num_layers)

    def with_num_layers(self, num_layers: int) -> TransformerSpec:
        """Return the model with another number of layers. Each kind of layer keeps about the same share.

        Dense layers at the start of a sparse model stay at the start.

        Example:
            >>> from autotuner.catalog.models import load_model
            >>> load_model("llama-3.1-8b").with_num_layers(4).num_layers
            4
        """
        experts = self.experts
        if experts is not None:
            experts = replace(experts, num_dense_layers=min(experts.num_dense_layers, num_layers))
        return replace(
            self,
            num_layers=num_layers,
            num_windowed_layers=self.num_windowed_layers * num_layers // self.num_layers,
            num_linear_layers=self.num_linear_layers * num_layers // self.num_layers,
            experts=experts,
        )

    # ---------------------------------------------------------------- widths
    @property
    def query_size(self) -> int:
        """The width of all query heads together."""
        rope = self.latent_attention.rope_head_dim if self.latent_attention else 0
        return self.num_heads * (self.head_dim + rope)

    @property
    def attention_output_size(self) -> int:
        """The width of all value heads together, which is the input of the output projection."""
        per_head = self.latent_attention.value_head_dim if self.latent_attention else self.head_dim
        return self.num_heads * per_head

    @property
    def key_value_size(self) -> int:
        """The width of keys and values together."""
        if self.latent_attention:
            return self.query_size + self.attention_output_size
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def mean_projected_size(self) -> float:
        """The total width of the queries, keys, values and output gates that a layer computes from one token.

        It is the mean over all layers.
        """
        projected = self.num_attending_layers * (self.query_size + self.key_value_size + self.output_gate_size)
        linear = self.num_linear_layers * self.linear_attention.projected_size if self.linear_attention else 0
        return (projected + linear) / self.num_layers

    @property
    def linear_share(self) -> float:
        """The share of layers whose attention is linear."""
        return self.num_linear_layers / self.num_layers

    @property
    def num_sparse_layers(self) -> int:
        """The number of layers whose feed-forward block is a mixture of experts."""
        return self.experts.num_sparse(self.num_layers) if self.experts else 0

    @property
    def num_attending_layers(self) -> int:
        """The number of layers with ordinary attention (queries see keys): all layers without linear attention."""
        return self.num_layers - self.num_linear_layers

    @property
    def output_gate_size(self) -> int:
        """The width of the gate on the output of attention; 0 if there is none."""
        return self.attention_output_size if self.attention_output_gate else 0

    # ---------------------------------------------------------------- matrices: parameters that multiply
    @property
    def attention_matrix_parameters(self) -> int:
        """The number of matrix elements in the projections of one block with ordinary (not linear) attention."""
        output = (self.attention_output_size + self.output_gate_size) * self.hidden_size
        latent = self.latent_attention
        if latent is None:
            return self.hidden_size * (self.query_size + self.key_value_size) + output
        rank = latent.query_rank
        query = (self.hidden_size + self.query_size) * rank if rank else self.hidden_size * self.query_size
        down = self.hidden_size * (latent.key_value_rank + latent.rope_head_dim)
        up = latent.key_value_rank * self.num_heads * (self.head_dim + latent.value_head_dim)
        indexer = (rank or 0) * latent.indexer_size + self.hidden_size * latent.indexer_key_size
        return query + down + up + indexer + output

    @property
    def linear_attention_matrix_parameters(self) -> int:
        """The number of matrix elements in the projections of one linear attention block; 0 if the model has none."""
        linear = self.linear_attention
        if linear is None:
            return 0
        return self.hidden_size * (linear.projected_size + linear.output_size) + linear.gate_matrix_parameters

    @property
    def mean_attention_matrix_parameters(self) -> float:
        """The number of matrix elements in the projections of an attention block, averaged over the layers."""
        linear = self.num_linear_layers * self.linear_attention_matrix_parameters
        return (self.num_attending_layers * self.attention_matrix_parameters + linear) / self.num_layers

    @property
    def mlp_matrix_parameters(self) -> int:
        """The number of matrix elements in one dense feed-forward block."""
        return self._matrices_per_mlp * self.hidden_size * self.ffn_size

    @property
    def expert_matrix_parameters(self) -> int:
        """The number of matrix elements in one expert; 0 in a dense model."""
        return self._matrices_per_mlp * self.hidden_size * self.experts.expert_ffn_size if self.experts else 0

    @property
    def shared_expert_matrix_parameters(self) -> int:
        """The number of matrix elements in the shared experts of one layer; 0 if there are none."""
        return self._matrices_per_mlp * self.hidden_size * self.experts.shared_ffn_size if self.experts else 0

    @property
    def router_matrix_parameters(self) -> int:
        """The number of elements of one router matrix; 0 in a dense model."""
        return self.hidden_size * self.experts.num_experts if self.experts else 0

    @property
    def embedding_parameters(self) -> int:
        """The number of elements of the token embedding table. An untied output projection has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def _matrices_per_mlp(self) -> int:
        return 3 if self.gated_mlp else 2

    # ---------------------------------------------------------------- totals
    @property
    def num_parameters(self) -> int:
        """The number of trainable parameters and routing biases, each counted once, as in published checkpoints.

        Tests compare the number with the transformers library for every supported type of model
        (tests/unit/catalog/huggingface).
        """
        return self.num_input_parameters + self.num_layer_parameters + self._num_output_parameters

    @property
    def num_input_parameters(self) -> int:
        """The number of parameters before the first layer: token embeddings, learned positions and embedding norm."""
        positions = self.num_learned_positions * self.hidden_size
        norm = self._norm_parameters(self.hidden_size) if self.embedding_norm else 0
        return self.embedding_parameters + positions + norm

    @property
    def num_output_bias_parameters(self) -> int:
        """The number of biases of the output projection; 0 if it has none."""
        return self.vocab_size if self.output_bias else 0

    @property
    def _num_output_parameters(self) -> int:
        table = 0 if self.tied_embeddings else self.embedding_parameters
        return table + self.num_output_bias_parameters + self._norm_parameters(self.hidden_size)

    @property
    def num_layer_parameters(self) -> int:
        """The number of parameters of all layers, without embeddings, output projection and final norm."""
        norms = self.num_layers * self.num_norms_per_layer * self._norm_parameters(self.hidden_size)
        attention = self.num_attending_layers * self._attention_parameters
        attention += self.num_linear_layers * self._linear_attention_parameters
        num_dense = self.num_layers - self.num_sparse_layers
        blocks = num_dense * self._dense_mlp_parameters + self.num_sparse_layers * self._sparse_mlp_parameters
        return norms + attention + blocks

    @property
    def num_expert_parameters(self) -> int:
        """The number of parameters of all routed experts, which the expert-parallel group splits."""
        if self.experts is None:
            return 0
        each = self.expert_matrix_parameters + self._expert_bias_parameters
        return self.num_sparse_layers * self.experts.num_experts * each

    @property
    def num_active_parameters(self) -> int:
        """The number of parameters that are used for one token. Of the routed experts, only the selected ones count."""
        if self.experts is None:
            return self.num_parameters
        num_idle = self.experts.num_experts - self.experts.experts_per_token
        return self.num_parameters - num_idle * (self.num_expert_parameters // self.experts.num_experts)

    @property
    def num_active_matrix_parameters(self) -> int:
        """The number of matrix elements that one token is multiplied by, including the output projection.

        Of the routed experts, only the selected ones count.
        """
        return self.num_active_layer_matrix_parameters + self.embedding_parameters

    @property
    def num_active_layer_matrix_parameters(self) -> int:
        """The number of matrix elements that one token is multiplied by, without the output projection."""
        total = self.num_attending_layers * self.attention_matrix_parameters
        total += self.num_linear_layers * self.linear_attention_matrix_parameters
        total += (self.num_layers - self.num_sparse_layers) * self.mlp_matrix_parameters
        if self.experts:
            routed = self.experts.experts_per_token * self.expert_matrix_parameters
            total += self.num_sparse_layers * (
                routed + self.shared_expert_matrix_parameters + self.router_matrix_parameters
            )
        return total

    def attention_flop_per_token(self, seq_len: int) -> int:
        """Return the FLOP per token of the score and value products of one forward pass, for all layers.

        Attention is counted in full, not halved for the causal mask. Windows are not subtracted. Linear layers count
        the FLOP of their recurrence.

        Args:
            seq_len: Tokens of the sequence that the token attends to.

        Source: PaLM, arXiv 2204.02311, appendix B (2 of its 6 parts are the forward pass).
        """
        linear = self.num_linear_layers * self.linear_attention.core_flop_per_token if self.linear_attention else 0
        return 2 * self.num_attending_layers * seq_len * (self.query_size + self.attention_output_size) + linear

    def model_flop_per_token(self, seq_len: int) -> int:
        """Return the forward and backward FLOP per token that the mathematics needs, without recomputation.

        A token needs 6 FLOP per matrix element (the input embedding is a lookup and needs none), plus full attention:
        12 L h s for L layers of hidden size h and a sequence of s tokens, if the heads together are as wide as h.

        Args:
            seq_len: Tokens of the sequence that the token attends to.

        Source: PaLM, arXiv 2204.02311, appendix B. Checked against torch's FlopCounterMode in tests/trials.

        Example:
            >>> from autotuner.catalog.models import load_model
            >>> load_model("llama-3.1-8b").model_flop_per_token(seq_len=8192)
            57912852480
        """
        return 6 * self.num_active_matrix_parameters + 3 * self.attention_flop_per_token(seq_len)

    def model_flop_per_step(self, workload: Workload) -> int:
        """Return the model FLOP (forward and backward, without recomputation) of one optimizer step of the whole job.

        If sequences differ in length, only real tokens count, and attention counts by the squares of the lengths.
        """
        if workload.lengths is None:
            return self.model_flop_per_token(workload.seq_len) * workload.tokens_per_step
        alone = self.model_flop_per_token(0)
        per_key = self.model_flop_per_token(1) - alone
        per_sequence = alone * workload.lengths.mean + per_key * workload.lengths.moment(2)
        return round(per_sequence * workload.global_batch_size)

    # ---------------------------------------------------------------- small change
    def _norm_parameters(self, width: int) -> int:
        return width * _NORM_PARAMETERS[self.norm]

    @property
    def _attention_parameters(self) -> int:
        bias = self.num_heads if self.attention_sinks else 0
        if self.attention_bias != "none":
            bias += self.query_size + self.key_value_size + self.output_gate_size
        if self.attention_bias == "all":
            bias += self.hidden_size
        norms = self._norm_parameters(self._qk_norm_size)
        if self.latent_attention:
            latent = self.latent_attention
            norms += self._norm_parameters(latent.query_rank or 0) + self._norm_parameters(latent.key_value_rank)
            norms += 2 * latent.indexer_head_dim  # the indexer's key has a layer norm
        return self.attention_matrix_parameters + bias + norms

    @property
    def _qk_norm_size(self) -> int:
        """Return the total width of the norms of queries and keys."""
        if not self.qk_norm:
            return 0
        return (self.num_heads + self.num_kv_heads if self.qk_norm_of_all_heads else 2) * self.head_dim

    @property
    def _linear_attention_parameters(self) -> int:
        linear = self.linear_attention
        return self.linear_attention_matrix_parameters + linear.num_other_parameters if linear else 0

    @property
    def _dense_mlp_parameters(self) -> int:
        inner = self.ffn_size * (2 if self.gated_mlp else 1)
        return self.mlp_matrix_parameters + (inner + self.hidden_size if self.mlp_bias else 0)

    @property
    def _sparse_mlp_parameters(self) -> int:
        if self.experts is None:
            return 0
        experts = self.experts
        routed = experts.num_experts * (self.expert_matrix_parameters + self._expert_bias_parameters)
        router = self.router_matrix_parameters + experts.num_experts * experts.router_bias
        return routed + router + self.shared_expert_matrix_parameters + self.hidden_size * experts.shared_expert_gate

    @property
    def _expert_bias_parameters(self) -> int:
        """Return the number of biases of one routed expert."""
        if self.experts is None or not self.experts.expert_bias:
            return 0
        return self.experts.expert_ffn_size * (2 if self.gated_mlp else 1) + self.hidden_size


@value
class ModelSize:
    """The size of a model. Users check it to see that the model's description was read as they meant it."""

    name: str
    num_parameters: int
    """Number of trainable parameters, each counted once."""
    num_active_parameters: int
    """Number of parameters that are used for one token. Of the routed experts, only those that the token is sent to
    count."""

    @classmethod
    def of(cls, model: TransformerSpec) -> Self:
        """Return the size of this model: its number of parameters, and of those that are active for one token."""
        num_active = model.num_active_parameters
        return cls(name=model.name, num_parameters=model.num_parameters, num_active_parameters=num_active)
