"""Which model of the catalog a table means: ``LLAMA3_8B``, ``Qwen3_30B_a3B``, ``meta-llama/Llama-3.1-70B-Instruct``."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache

from autotuner.catalog.load import load_model, model_aliases, models
from autotuner.core.model import TransformerSpec

__all__ = ["model_called", "model_like"]

_WORD = re.compile(
    r"a\d+(?:\.\d+)?b(?![a-z0-9])|\d+x\d+(?:\.\d+)?[bm]?|\d+(?:\.\d+)?[bmt](?![a-z])|\d+(?:\.\d+)?|[a-z]+"
)
"""A word of a name: ``a3b``, ``8x7b``, ``70b``, ``3.1``, ``llama``."""

_DEPTH = re.compile(r"\d{1,3}(?:l\b| ?-?layers?\b)")
"""How many layers of it were run."""

_SIZE = re.compile(r"\d+(?:\.\d+)?[bt]|\d{2,}(?:\.\d+)?m")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}

_OTHER_KINDS = frozenset({"mamba", "hybrid", "h", "nano", "super", "next", "vl", "ssm"})
"""Words of relatives that are built otherwise: Nemotron-H and Nano are no transformers, Qwen-VL sees."""

_SIZE_TOLERANCE = 0.15
"""How far the size in a name may lie from the parameter count: ``Gemma 7B`` has 8.5, ``GPT-3 175B`` has 174.6."""


@lru_cache(maxsize=4096)  # names may come from requests
def model_called(name: str) -> TransformerSpec | None:
    """The model whose words all occur in the name, the longest of several; None where none is meant.

    A size in the name must be one of the model's words, or about its number of parameters, all or those that a token
    sees.
    """
    words = _words(name)
    fitting = [(len(known), model) for known, model in _known() if known <= words and _fit(words - known, model)]
    return load_model(max(fitting)[1]) if fitting else None


def model_like(model: TransformerSpec) -> TransformerSpec:
    """The catalog's model of these shapes: that of the same name, else the first of several; itself where none is."""
    alike = [one for one in map(load_model, models()) if replace(one, name=model.name) == model]
    return model if model in alike else next(iter(alike), model)


def _words(name: str) -> frozenset[str]:
    versions = re.sub(r"v(?=\d)", " v ", _DEPTH.sub(" ", name.lower()))
    return frozenset(_WORD.findall(versions))


@cache
def _known() -> tuple[tuple[frozenset[str], str], ...]:
    spelled = [(name, name) for name in models()] + list(model_aliases().items())
    return tuple((_words(text), name) for text, name in spelled)


def _fit(others: frozenset[str], model: str) -> bool:
    if others & _OTHER_KINDS:
        return False
    spec = load_model(model)
    counts = (spec.num_parameters, spec.num_active_matrix_parameters)
    sizes = [float(word[:-1]) * _UNITS[word[-1]] for word in others if _SIZE.fullmatch(word)]
    return all(any(abs(size / number - 1) < _SIZE_TOLERANCE for number in counts) for size in sizes)
