"""Models by name, from ``models.toml``, and a search for the model that a name in another program's spelling means."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache

from autotuner.catalog.facts import find_name, read_tables
from autotuner.core.codec import from_plain
from autotuner.core.model import TransformerSpec

_TABLE = "models.toml"
_ABOUT = ("source", "date", "aliases")
"""Entries of a model's table that are not shapes."""

_WORD = re.compile(
    r"a\d+(?:\.\d+)?b(?![a-z0-9])|\d+x\d+(?:\.\d+)?[bm]?|\d+(?:\.\d+)?[bmt](?![a-z])|\d+(?:\.\d+)?|[a-z]+"
)
"""Pattern of one word of a model's name: ``a3b``, ``8x7b``, ``70b``, ``3.1``, ``llama``."""

_DEPTH = re.compile(r"\d{1,3}(?:l\b| ?-?layers?\b)")
"""Pattern of a number of layers, which some tables of measured runs put into the model's name."""

_SIZE = re.compile(r"\d+(?:\.\d+)?[bt]|\d{2,}(?:\.\d+)?m")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}

_OTHER_KINDS = frozenset({"mamba", "hybrid", "h", "nano", "super", "next", "vl", "ssm"})
"""Words that name a related model with another architecture: Nemotron-H and Nano are not plain transformers, and
Qwen-VL also reads images."""

_SIZE_TOLERANCE = 0.15
"""Largest relative difference between the size in a name and the number of parameters: ``Gemma 7B`` has 8.5 billion,
``GPT-3 175B`` has 174.6."""


def models() -> tuple[str, ...]:
    """Return the names of all models of the catalog, in the order of its table."""
    return tuple(read_tables(_TABLE))


def load_model(name: str) -> TransformerSpec:
    """Return the model of the catalog that has this name, in upper or lower case.

    Raises:
        NotFound: No model has this name. The error suggests the most similar name.
    """
    tables = read_tables(_TABLE)
    key = find_name("model", name, tables)
    shapes = {field: value for field, value in tables[key].items() if field not in _ABOUT}
    return from_plain(TransformerSpec, {"name": key, **shapes})


@lru_cache(maxsize=4096)  # names may come from requests
def model_called(name: str) -> TransformerSpec | None:
    """Return the catalog model that a free-form name describes, such as ``LLAMA3_8B``; None if no model fits.

    A model fits if all words of its own name or alias occur in the given name. If several models fit, the model that
    shares the most words with the given name is returned. Published tables write ``LLAMA3_8B``, ``Qwen3_30B_a3B`` or
    ``meta-llama/Llama-3.1-70B-Instruct``. If the given name states a size, this size must be one of the model's words,
    or be close to the number of the model's parameters (all of them, or those that are active for one token).
    """
    words = _words(name)
    fitting = [(len(known), model) for known, model in _known() if known <= words and _fit(words - known, model)]
    return load_model(max(fitting)[1]) if fitting else None


def model_like(model: TransformerSpec) -> TransformerSpec:
    """Return the catalog model with the same shapes as the given model; the given model if the catalog has none.

    A catalog model with the same name is preferred. The name is the only field that may differ.
    """
    alike = [one for one in map(load_model, models()) if replace(one, name=model.name) == model]
    return model if model in alike else next(iter(alike), model)


def _words(name: str) -> frozenset[str]:
    versions = re.sub(r"v(?=\d)", " v ", _DEPTH.sub(" ", name.lower()))
    return frozenset(_WORD.findall(versions))


@cache
def _known() -> tuple[tuple[frozenset[str], str], ...]:
    """Return the words of each name and alias of the catalog, with the model that they name."""
    tables = read_tables(_TABLE)
    aliases = [(alias, name) for name, table in tables.items() for alias in table.get("aliases", ())]
    return tuple((_words(text), name) for text, name in [*((name, name) for name in tables), *aliases])


def _fit(others: frozenset[str], model: str) -> bool:
    """Return True if the remaining words of a name do not contradict the model."""
    if others & _OTHER_KINDS:
        return False
    spec = load_model(model)
    counts = (spec.num_parameters, spec.num_active_matrix_parameters)
    sizes = [float(word[:-1]) * _UNITS[word[-1]] for word in others if _SIZE.fullmatch(word)]
    return all(any(abs(size / number - 1) < _SIZE_TOLERANCE for number in counts) for size in sizes)
