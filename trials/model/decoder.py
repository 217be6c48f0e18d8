"""A decoder-only transformer, or a contiguous part of one, in plain PyTorch; it knows no parallelism.

Llama by default (RMSNorm, rotary positions, grouped-query attention, SwiGLU); layer norm, learned positions, biases,
a plain GELU block and per-head norms follow the spec.

Tensor suffixes: B sequences, S tokens of a sequence, D hidden size, H heads of this rank, K kv heads of this rank,
E head dim, F ffn size, V vocabulary. A tensor-parallel rank sees a part of H, K, F and V and, with sequence
parallelism, a part of S outside attention and feed-forward: nothing here assumes the full width.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from autotuner.core.choices import Precision
from autotuner.core.model import TransformerSpec
from autotuner.training.batches import NO_LABEL, WHOLE_ROWS, Documents, positions_in
from autotuner.trials.model.attention import AttentionCore, attend
from autotuner.trials.model.experts import ALL_EXPERTS, Experts, FeedForward, LocalExperts, SparseFeedForward

# Normalisation over the last dim, as one operation or composed of several.

_EPSILON = 1e-5  # Llama 3's rms_norm_eps (model card, 2024-04)


def norm(spec: TransformerSpec, width: int, *, fused: bool = True) -> nn.Module:
    """Return the normalisation layer of the model.

    The fused and the composed form of the layer have parameters with the same names.

    Args:
        spec: The model.
        width: Number of elements that are normalised together.
        fused: True to use torch's own module; False to compose the layer of simple operations.
    """
    if spec.norm == "rmsnorm":
        return (nn.RMSNorm if fused else _ComposedRMSNorm)(width, eps=_EPSILON)
    weights = spec.norm != "layernorm_without_weights"
    kind = nn.LayerNorm if fused else _ComposedLayerNorm
    return kind(width, eps=_EPSILON, elementwise_affine=weights, bias=spec.norm == "layernorm")


class _ComposedRMSNorm(nn.RMSNorm):
    """Root mean square normalisation (arXiv 1910.07467, equation 4), composed of elementary operations.

    It computes in fp32, like the fused kernels. It writes intermediate values to memory, which fused kernels avoid.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, scaled to a root mean square of 1 over its last dim, times the weight."""
        exact = x.float()
        normed = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + _EPSILON)
        return (normed * self.weight.float()).to(x.dtype)


class _ComposedLayerNorm(nn.LayerNorm):
    """Layer normalisation (arXiv 1607.06450, equation 4), composed of elementary operations in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, normalised to mean 0 and variance 1 over its last dim, times the weight, plus the bias."""
        exact = x.float()
        centred = exact - exact.mean(-1, keepdim=True)
        normed = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + _EPSILON)
        if self.elementwise_affine:
            normed = normed * self.weight.float()
        return (normed if self.bias is None else normed + self.bias.float()).to(x.dtype)


TokenPositions = Callable[[int, torch.device | None], Tensor]
"""Function that returns the positions, within the sequence, of this rank's tokens, from their number and a device."""

_ROTARY_BASE = 500_000.0  # Llama 3's rope_theta (arXiv 2407.21783, section 3.2)


def every_position(num_tokens: int, device: torch.device | None) -> Tensor:
    """Return the positions 0, 1, ... for a rank that holds whole sequences."""
    return torch.arange(num_tokens, device=device)


def rotary_table(positions: Tensor, head_dim: int) -> Tensor:
    """Return the cosines and sines for rotary embeddings, for every position and frequency: shape (2, S, E/2), fp32.

    Source: RoFormer, arXiv 2104.09864, equation 15.
    """
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = torch.outer(positions.float(), _ROTARY_BASE**-exponents)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x_BSHE: Tensor, table: Tensor) -> Tensor:
    """Apply a rotary embedding: rotate each pair (e, e + E/2) of elements of a head by the angle of its position."""
    cos, sin = table.to(x_BSHE.dtype)[:, :, None, :]
    first, second = x_BSHE.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """A module of causal self-attention: projections and norms around the attention function (``AttentionCore``)."""

    def __init__(self, spec: TransformerSpec, core: AttentionCore, *, fused_norm: bool = True) -> None:
        super().__init__()
        key_value_size = spec.num_kv_heads * spec.head_dim
        bias = spec.attention_bias != "none"
        self.head_dim = spec.head_dim
        self.query = nn.Linear(spec.hidden_size, spec.query_size, bias=bias)
        self.key = nn.Linear(spec.hidden_size, key_value_size, bias=bias)
        self.value = nn.Linear(spec.hidden_size, key_value_size, bias=bias)
        self.output = nn.Linear(spec.query_size, spec.hidden_size, bias=spec.attention_bias == "all")
        self.query_norm = norm(spec, spec.head_dim, fused=fused_norm) if spec.qk_norm else nn.Identity()
        self.key_norm = norm(spec, spec.head_dim, fused=fused_norm) if spec.qk_norm else nn.Identity()
        self.core = core

    def forward(self, x_BSD: Tensor, table: Tensor | None, documents: Documents = WHOLE_ROWS) -> Tensor:
        """Return the output of attention over the whole sequence, or over each document.

        Args:
            x_BSD: The hidden state.
            table: The rotary table of the positions; None for a model with learned positions.
            documents: Number of tokens of each document in the row; empty: each row is one sequence.
        """
        q_BSHE = self.query_norm(self.query(x_BSD).unflatten(-1, (-1, self.head_dim)))
        k_BSKE = self.key_norm(self.key(x_BSD).unflatten(-1, (-1, self.head_dim)))
        v_BSKE = self.value(x_BSD).unflatten(-1, (-1, self.head_dim))
        if table is not None:
            q_BSHE, k_BSKE = rotate(q_BSHE, table), rotate(k_BSKE, table)
        attended_BSHE = self.core(q_BSHE, k_BSKE, v_BSKE, documents)
        out_BSD: Tensor = self.output(attended_BSHE.flatten(2))
        return out_BSD


class Layer(nn.Module):
    """A transformer layer: attention and a feed-forward block, each with a norm before it and a residual around it.

    The feed-forward block is dense unless another block is given.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        core: AttentionCore,
        feed_forward: nn.Module | None = None,
        *,
        fused_norm: bool = True,
    ) -> None:
        super().__init__()
        self.attention_norm = norm(spec, spec.hidden_size, fused=fused_norm)
        self.attention = Attention(spec, core, fused_norm=fused_norm)
        self.mlp_norm = norm(spec, spec.hidden_size, fused=fused_norm)
        self.mlp = _dense(spec) if feed_forward is None else feed_forward

    def forward(self, x_BSD: Tensor, table: Tensor | None, documents: Documents = WHOLE_ROWS) -> Tensor:
        """Return the hidden state after this layer.

        Args:
            x_BSD: The hidden state before this layer.
            table: The rotary table of the positions; None for a model with learned positions.
            documents: Number of tokens of each document in the row; empty: each row is one sequence.
        """
        h_BSD: Tensor = x_BSD + self.attention(self.attention_norm(x_BSD), table, documents)
        out_BSD: Tensor = h_BSD + self.mlp(self.mlp_norm(h_BSD))
        return out_BSD


class Decoder(nn.Module):
    """A range of consecutive layers of a decoder model, with the embedding and the output projection at its ends.

    The embedding is included if the range begins with the first layer, and the output projection if it ends with the
    last. The tokens have the positions ``token_positions``. A stage without the embedding does not receive tokens, and
    a tensor rank may have the hidden states of some tokens only. Therefore ``seq_len`` gives the number of tokens.

    Parameters have the same names as in the whole model (such as ``layers.7.mlp.up.weight``). Tied tables are two
    parameters until the caller ties them. Code that replaces parameters by shards must tie them again.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        *,
        seq_len: int,
        layers: range,
        token_positions: TokenPositions = every_position,
        core: AttentionCore = attend,
        experts: LocalExperts = ALL_EXPERTS,
        fused_norm: bool = True,
    ) -> None:
        super().__init__()
        begins, ends = layers.start == 0, layers.stop == spec.num_layers
        positions = spec.num_learned_positions
        self.seq_len = seq_len
        self._token_positions = token_positions
        self.head_dim = spec.head_dim
        self.rotary = positions == 0
        self.embedding = nn.Embedding(spec.vocab_size, spec.hidden_size) if begins else None
        self.positions = nn.Embedding(positions, spec.hidden_size) if begins and positions else None
        feed_forward = {index: _feed_forward(spec, experts, index) for index in layers}
        self.layers = nn.ModuleDict(
            {str(index): Layer(spec, core, mlp, fused_norm=fused_norm) for index, mlp in feed_forward.items()}
        )
        self.norm = norm(spec, spec.hidden_size, fused=fused_norm) if ends else None
        self.output = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False) if ends else None

    def forward(self, x: Tensor, documents: Documents = WHOLE_ROWS) -> Tensor:
        """Run the layers, and return the logits or the hidden state.

        The first stage takes tokens_BS; later stages take x_BSD. The last stage returns logits_BSV; other stages return
        x_BSD.
        """
        positions_S = self._positions(x, documents)
        if self.embedding is not None:
            tokens_BS, x = x, self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(positions_S.expand_as(tokens_BS))
        table = rotary_table(positions_S, self.head_dim) if self.rotary else None
        for layer in self.layers.values():
            x = layer(x, table, documents)
        if self.norm is not None and self.output is not None:
            x = self.output(self.norm(x))
        return x

    def _positions(self, x: Tensor, documents: Documents) -> Tensor:
        """Return the positions of this rank's tokens in their sequence."""
        if documents:
            return positions_in(documents, x.device)
        return self._token_positions(self.seq_len if self.embedding is None else x.shape[1], x.device)


def _feed_forward(spec: TransformerSpec, local: LocalExperts, layer: int) -> nn.Module:
    """Return the feed-forward block of a layer: dense, or sparse if the spec has experts there."""
    if spec.experts is not None and spec.experts.is_sparse(layer):
        return SparseFeedForward(spec, spec.experts, local)
    return _dense(spec)


def _dense(spec: TransformerSpec) -> nn.Module:
    return FeedForward(spec.hidden_size, spec.ffn_size, gated=spec.gated_mlp, bias=spec.mlp_bias)


# First values of the parameters: the same tensors for every layout, and never more of them at once than needed.

_STANDARD_DEVIATION = 0.02  # GPT-2's initializer_range; a trial trains a few steps, so nothing finer matters


def parameter_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of parameters, activations and gradients.

    The optimizer keeps its own copies of the parameters in fp32 (see ``trials.step.optimizer``).
    """
    return torch.float32 if precision == Precision.FP32 else torch.bfloat16


def materialise(module: nn.Module, path: str, *, seed: int, device: torch.device, dtype: torch.dtype) -> None:
    """Replace the parameters of a module on the meta device by their initial values, and its buffers by zeros.

    Every tensor has its own random generator, seeded by the trial's seed and the tensor's name in the whole model. So
    the values depend neither on the layout nor on the order of construction. They are drawn on ``device``, because a
    GPU draws billions of values in less than a second. Therefore they are the same for all layouts, but differ between
    CPUs and GPUs.

    Args:
        module: The module.
        path: The name of the module in the whole model.
        seed: The seed of the trial.
        device: The device on which the values are drawn and kept.
        dtype: The dtype of the parameters.
    """
    for name, parameter in list(module.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        part = module.get_submodule(owner)
        if isinstance(part, Experts):  # each expert's values have a name, whichever others lie beside it
            value = torch.empty(parameter.shape, device=device, dtype=dtype)
            for expert, index in zip(value, part.indices, strict=True):
                expert.copy_(_first_value(f"{path}.{owner}.{index}.{leaf}", expert.shape, seed, device))
        else:
            value = _first_value(f"{path}.{name}", parameter.shape, seed, device).to(dtype)
        setattr(part, leaf, nn.Parameter(value))
    for name, buffer in list(module.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, torch.zeros(buffer.shape, device=device))


def _first_value(name: str, shape: torch.Size, seed: int, device: torch.device) -> Tensor:
    if name.endswith("bias"):
        return torch.zeros(shape, device=device)
    if name.endswith("norm.weight"):
        return torch.ones(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    return torch.empty(shape, device=device).normal_(0.0, _STANDARD_DEVIATION, generator=generator)


# Cross-entropy of the next token.

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function from logits_BSV and labels_BS to the sum of the loss over all tokens with a label, in fp32."""


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Return the sum of the cross-entropy losses of all tokens with a label, computed in fp32.

    The caller divides the sum by the number of tokens of the whole step, so that all tokens have the same weight.
    """
    return functional.cross_entropy(
        logits_BSV.flatten(0, 1).float(), labels_BS.flatten(), ignore_index=NO_LABEL, reduction="sum"
    )
