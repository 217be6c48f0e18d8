"""RecomputePolicy: which activations of a layer are kept, and which are computed again."""

from __future__ import annotations

from enum import Enum
from functools import cache, reduce

from autotuner.core.value import value


class LayerPart(Enum):
    """One operation of a layer's forward pass. The same member also names the result of the operation.

    If tensor ranks split a layer, each of its two blocks (attention and feed-forward) gathers its input before its
    first products, and reduces its result.
    """

    ATTENTION_NORM = "attention_norm"
    ATTENTION_GATHER = "attention_gather"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    LATENT_UP = "latent_up"
    ROTATION = "rotation"
    SCORES = "scores"
    CORE = "core"
    ATTENTION_OUTPUT = "attention_output"
    ATTENTION_REDUCE = "attention_reduce"
    RESIDUAL = "residual"
    MLP_NORM = "mlp_norm"
    MLP_GATHER = "mlp_gather"
    MLP_GATE = "mlp_gate"
    MLP_UP = "mlp_up"
    MLP_ACTIVATION = "mlp_activation"
    MLP_DOWN = "mlp_down"
    ROUTING = "routing"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_ACTIVATION = "expert_activation"
    EXPERT_DOWN = "expert_down"
    SHARED_EXPERTS = "shared_experts"
    MLP_REDUCE = "mlp_reduce"


_P = LayerPart


@value
class Recomputed:
    """The operations of a layer that the backward pass repeats, and the results that the layer keeps or drops."""

    repeats: frozenset[LayerPart] = frozenset()
    """Parts of a layer that run a second time. ``SCORES`` is in this set only for a kernel that stores the scores in
    memory."""
    drops: frozenset[LayerPart] = frozenset()
    """Parts of a layer whose result is freed, although a plain backward pass would keep it."""
    keeps: frozenset[LayerPart] = frozenset()
    """Parts of a layer whose result is kept, although a plain backward pass does not read it."""

    def __or__(self, other: Recomputed) -> Recomputed:
        return Recomputed(
            repeats=self.repeats | other.repeats, drops=self.drops | other.drops, keeps=self.keeps | other.keeps
        )


class RecomputePolicy(Enum):
    """The policies of selective recomputation: each says what a layer drops and computes again. They may be combined.

    The first seven policies are modules of Megatron-LM (``--recompute-modules``, core 0.13, 2025-07). The layer keeps
    the inputs of a named module, and drops the results inside it. With all later policies, the layer keeps its own
    input and the results of some operations, and drops the rest.

    ``all_but_products`` is the policy of this product's own trials (PyTorch): the results of products, fused
    attention and collectives are kept. ``every_other_product`` is torchtitan's policy by operator
    (``_get_custom_policy``, 2025-06): of the products in the order queries, keys, values, output, gate, up, down, every
    second result is dropped.

    The remaining policies are values of ``remat_policy`` in MaxText (layers/decoders.py, 2025-07): the results of
    products with the named matrices are kept. ``context`` means the result of the attention core.
    """

    CORE_ATTN = "core_attn"
    LAYERNORM = "layernorm"
    MLP = "mlp"
    MLA_UP_PROJ = "mla_up_proj"
    MOE_ACT = "moe_act"
    MOE = "moe"
    SHARED_EXPERTS = "shared_experts"
    ALL_BUT_PRODUCTS = "all_but_products"
    EVERY_OTHER_PRODUCT = "every_other_product"
    MINIMAL = "minimal"
    MINIMAL_WITH_CONTEXT = "minimal_with_context"
    SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP = "save_dot_with_context_except_mlp"
    SAVE_DOT_EXCEPT_MLP = "save_dot_except_mlp"
    SAVE_DOT_EXCEPT_MLPWI = "save_dot_except_mlpwi"
    SAVE_QKV_PROJ = "save_qkv_proj"
    SAVE_OUT_PROJ = "save_out_proj"


@cache
def recomputed(policies: tuple[RecomputePolicy, ...]) -> Recomputed:
    """Return the operations that the backward pass repeats under all of these recomputation policies together."""
    return reduce(Recomputed.__or__, (_MEANING[policy] for policy in policies), Recomputed())


_QKV = frozenset({_P.QUERY, _P.KEY, _P.VALUE, _P.LATENT_UP})
_INNER = frozenset({_P.MLP_GATE, _P.MLP_UP, _P.EXPERT_GATE, _P.EXPERT_UP})
_DOWN = frozenset({_P.MLP_DOWN, _P.EXPERT_DOWN})
_OUTPUT = frozenset({_P.ATTENTION_OUTPUT})
_GATHERS = frozenset({_P.ATTENTION_GATHER, _P.MLP_GATHER})
_REDUCES = frozenset({_P.ATTENTION_REDUCE, _P.MLP_REDUCE})
_UNREAD = _DOWN | {_P.MLP_REDUCE}
"""Parts whose results no other part of the layer reads, so that they are never computed again."""


def _module(*parts: LayerPart, result: LayerPart | None = None) -> Recomputed:
    """Return the recomputation of one of Megatron's modules. The final result of the module is not kept."""
    ended = frozenset() if result is None else frozenset({result})
    return Recomputed(repeats=frozenset(parts) | ended, drops=frozenset(parts))


def _keeping(kept: frozenset[LayerPart]) -> Recomputed:
    """Return the recomputation of a whole layer, except for the results that are kept."""
    others = frozenset(LayerPart) - kept
    return Recomputed(repeats=others - _UNREAD, drops=others, keeps=kept)


_MEANING = {
    RecomputePolicy.CORE_ATTN: Recomputed(repeats=frozenset({_P.CORE}), drops=frozenset({_P.SCORES})),
    RecomputePolicy.LAYERNORM: _module(_P.ATTENTION_NORM, _P.MLP_NORM),
    RecomputePolicy.MLP: _module(  # the norm lies in the first product's module (TELayerNormColumnParallelLinear)
        *(_P.MLP_NORM, _P.MLP_GATHER, _P.MLP_GATE, _P.MLP_UP, _P.MLP_ACTIVATION, _P.MLP_DOWN), result=_P.MLP_REDUCE
    ),
    RecomputePolicy.MLA_UP_PROJ: _module(_P.LATENT_UP, _P.ROTATION),
    RecomputePolicy.MOE_ACT: _module(_P.EXPERT_ACTIVATION),
    RecomputePolicy.MOE: _module(
        *(_P.ROUTING, _P.EXPERT_GATE, _P.EXPERT_UP, _P.EXPERT_ACTIVATION, _P.SHARED_EXPERTS), result=_P.EXPERT_DOWN
    ),
    RecomputePolicy.SHARED_EXPERTS: _module(_P.SHARED_EXPERTS),
    RecomputePolicy.ALL_BUT_PRODUCTS: _keeping(
        _QKV | {_P.CORE, _P.SHARED_EXPERTS} | _OUTPUT | _INNER | _DOWN | _GATHERS | _REDUCES
    ),
    RecomputePolicy.EVERY_OTHER_PRODUCT: _keeping(
        frozenset({_P.QUERY, _P.VALUE, _P.CORE, _P.MLP_GATE, _P.EXPERT_GATE}) | _DOWN | _REDUCES
    ),
    RecomputePolicy.MINIMAL: _keeping(_QKV | _OUTPUT | _INNER | _DOWN | {_P.SHARED_EXPERTS}),
    RecomputePolicy.MINIMAL_WITH_CONTEXT: _keeping(_QKV | _OUTPUT | _INNER | _DOWN | {_P.CORE, _P.SHARED_EXPERTS}),
    RecomputePolicy.SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP: _keeping(_QKV | _OUTPUT | {_P.CORE}),
    RecomputePolicy.SAVE_DOT_EXCEPT_MLP: _keeping(_QKV | _OUTPUT),
    RecomputePolicy.SAVE_DOT_EXCEPT_MLPWI: _keeping(_QKV | _OUTPUT | _DOWN),
    RecomputePolicy.SAVE_QKV_PROJ: _keeping(_QKV),
    RecomputePolicy.SAVE_OUT_PROJ: _keeping(_OUTPUT),
}
