"""The page of the fields with which people describe a model or a cluster."""

from __future__ import annotations

import re
import types
from dataclasses import MISSING, Field, fields
from enum import Enum
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
from documentation.reference.markdown import head, table

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
"""Types that users write as JSON, with the headings of their tables."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def descriptions_page() -> str:
    """Return the Markdown page of the JSON fields that describe a model or a cluster: one table for each object."""
    summary = "The JSON fields of a model and of a cluster, as `--model`, `--cluster` and the REST API take them."
    parts = [head("Descriptions of models and clusters", summary)]
    for cls, title in _DESCRIBED.items():
        hints, texts = get_type_hints(cls), meanings(cls)
        rows = [
            (f"`{one.name}`", value_words(hints[one.name]), default_text(one), texts.get(one.name, ""))
            for one in fields(cls)
        ]
        parts.append(f"## {title}\n\n{table(('field', 'value', 'default', 'meaning'), rows)}")
    return "\n".join(parts)


def meanings(cls: type[Any]) -> dict[str, str]:
    """Return the meaning of each field of a class, on one line, with ``None`` written as JSON's ``null``."""
    texts = {name: " ".join(text.split()).replace("``", "`") for name, text in field_texts(cls).items()}
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in texts.items()}


def value_words(hint: Any) -> str:
    """Return the name of a Python type for people who write JSON, such as "list of text or null"."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is types.NoneType else value_words(one) for one in args)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in args)
    if origin is tuple:
        return f"list of {value_words(args[0])}"
    if isinstance(hint, type) and issubclass(hint, Choice):
        return ", ".join(f"`{word}`" for word in hint.labels())
    return _WORDS.get(hint, "object")


def default_text(one: Field[Any]) -> str:
    """Return the default of a field as a text; a dash if the field is required."""
    if one.default is MISSING:
        return "-" if one.default_factory is MISSING else "none"
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
