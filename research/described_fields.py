"""Tables of every field that a model or a cluster is described by, from the docstrings of the code.

``python -m research.described_fields`` writes them into docs/descriptions.md, behind its last heading of the first
order.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from autotuner.core.accelerator import Accelerator
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.choices import Choice
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.codec import to_plain
from autotuner.core.link import Link, LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.network import Network, Port, Tier, Wiring
from autotuner.core.text import field_texts

PAGE = Path(__file__).resolve().parent.parent / "docs" / "descriptions.md"

_HEAD = "# Every field\n"

_DESCRIBED = {
    TransformerSpec: "A model",
    MixtureOfExperts: "`experts` of a model",
    LatentAttention: "`latent_attention` of a model",
    LinearAttention: "`linear_attention` of a model",
    Cluster: "A cluster",
    Accelerator: "`accelerator` of a cluster",
    Link: "`intra_node_link` and `inter_node_link` of a cluster",
    LinkHealth: "An entry of `link_health` of a cluster",
    Network: "`network` of a cluster",
    Tier: "An entry of `tiers` of a network",
    Wiring: "`wiring` of a cluster",
    Port: "An entry of `ports` of a wiring",
    Tariff: "`tariff` of a cluster",
}
"""What people write down, by the headings of their tables."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def page(text: str) -> str:
    """The page with the tables as the code has them now."""
    return text[: text.index(_HEAD)] + "\n".join([_HEAD, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    for cls, title in _DESCRIBED.items():
        yield f"## {title}\n\n| field | value | default | meaning |\n| --- | --- | --- | --- |"
        hints, meanings = get_type_hints(cls), _meanings(cls)
        for one in fields(cls):
            cells = (f"`{one.name}`", _words(hints[one.name]), _default(one), meanings.get(one.name, ""))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _meanings(cls: type[Any]) -> dict[str, str]:
    """What is said of each field, on one line and of JSON."""
    texts = {name: " ".join(text.split()).replace("``", "`") for name, text in field_texts(cls).items()}
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in texts.items()}


def _words(hint: Any) -> str:
    """The type as somebody who writes JSON would say it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is types.NoneType else _words(one) for one in args)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in args)
    if origin is tuple:
        return f"list of {_words(args[0])}"
    if isinstance(hint, type) and issubclass(hint, Choice):
        return ", ".join(f"`{word}`" for word in hint.labels())
    return _WORDS.get(hint, "object")


def _default(one: Field[Any]) -> str:
    if one.default is MISSING:
        return "-"
    value = one.default.value if isinstance(one.default, Enum) else to_plain(one.default)
    match value:
        case None | [] | "":
            return "none"
        case bool():
            return str(value).lower()
        case list():
            return ", ".join(f"`{item}`" for item in value)
        case str():
            return f"`{value}`"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def main() -> None:
    """Write the page, and print its tables."""
    text = page(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text[text.index(_HEAD) :])


if __name__ == "__main__":
    main()
