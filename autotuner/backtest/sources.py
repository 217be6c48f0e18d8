"""What a known source leaves out of its tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from autotuner.domain.wire import from_dict

__all__ = ["Source", "source_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What blank cells of a table mean; the defaults are those of a table that nobody described.

    Attributes:
        match: Beginnings of the ``source`` column.
        stack: Software, by its name in the catalog.
        sharding: What a blank shard level is, in the table's words.
        attention: What a blank kernel is, in the table's words; the default is what PyTorch picks today.
        flash: Which FlashAttention the bare word means.
        recompute: What blank recomputation is, in the table's words.
        sequence_parallel: Whether a blank cell means that it is on.
        names_fused_norm: The kernel column says where norms are fused, so that elsewhere they are not; else all are.
        vocab: Size of the vocabulary; None: rows without it cannot be used.
        inter_node_link: What one accelerator gets of the network, by its name in the catalog; None: the usual one.
        oversubscription: Factor by which the cluster's network is thinner than that.
        congestion: Exponent of the number of nodes by which it slows down; None: the link's own.
        accelerators_per_node: Where the number of accelerators is no multiple of it, the largest divisor of both.
        tflops: A row with nothing but TFLOP/s counted recomputation (``hardware``), or not (``model``); None: such a
            row cannot be used.
    """

    match: tuple[str, ...] = ()
    stack: str = "typical"
    sharding: str = ""
    attention: str = ""
    flash: str = "flash"
    recompute: str = "none"
    sequence_parallel: bool = False
    names_fused_norm: bool = False
    vocab: int | None = None
    inter_node_link: str | None = None
    oversubscription: float = 1.0
    congestion: float | None = None
    accelerators_per_node: int | None = None
    tflops: Literal["hardware", "model"] | None = None


def source_of(text: str) -> Source:
    """The description whose beginning matches, or that of an unknown source."""
    for source in _sources():
        if text.startswith(source.match):
            return source
    return Source()


@cache
def _sources() -> tuple[Source, ...]:
    text = files("autotuner.backtest").joinpath("sources.toml").read_text(encoding="utf-8")
    return tuple(from_dict(Source, entry, f"source.{i}") for i, entry in enumerate(tomllib.loads(text)["source"]))
