"""What trainers of others say of lossy exchanges, early clipping, batches dealt by length and two levels: nothing.

Where a trainer packs or buckets sequences its data loader does, outside what a launch configures. Ranks find
themselves numbered by torchrun, or as it does: those of a node one after the other.
"""

from __future__ import annotations

from autotuner.core.layout import OPTIONS
from autotuner.core.rules.rule import Rule

_WHY = {
    "gradient_sync": "{} sums all gradients in every step; trials.replication wraps an optimizer of one's own loop",
    "gradient_clip": "{} clips behind the reduction; trials.clipping has hooks for one's own loop",
    "batch_balance": "the data loader of {} decides which sequences a rank takes; trials.batches has a sampler for it",
    "sequence_packing": "the data loader of {} decides whether sequences share a row",
    "collective_hierarchy": "{} reduces over one group of all ranks; trials.collectives has two levels",
    "rank_placement": "{} finds its ranks numbered by a launcher that fills a node before the next",
}


def exchanges_and_batches(trainer: str, prefix: str) -> tuple[Rule, ...]:
    """Rules of a trainer that exchanges gradients, clips and batches in its own way, over ranks numbered for it.

    Args:
        trainer: As sentences name it.
        prefix: Of the names of its rules.
    """
    return tuple(
        _held(f"{prefix}-keeps-{field.replace('_', '-')}", field, why.format(trainer)) for field, why in _WHY.items()
    )


def _held(name: str, field: str, message: str) -> Rule:
    """A field that stays at its default."""
    default = OPTIONS[field].default
    return Rule(
        name,
        field,
        lambda x, j: getattr(x, field) != default,
        lambda x, j: message,
        lambda x, j: OPTIONS[field].to_plain(default),
    )
