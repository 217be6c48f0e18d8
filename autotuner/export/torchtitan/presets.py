"""Presets: what configuration functions of torchtitan 0.3 set."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NEAREST: Mapping[tuple[str, str], str] = {
    ("llama3", "1B"): "llama3_8b",
    ("llama3", "3B"): "llama3_8b",
    ("qwen3", "4B"): "qwen3_1_7b",
    ("qwen3", "8B"): "qwen3_14b",
    ("qwen3", "235B-A22B"): "qwen3_30b_a3b",
    ("deepseek_v3", "236B"): "deepseek_v3_16b",
}
"""Flavors that no function makes, with one that has their vocabulary."""


@cache
def presets() -> Mapping[str, Mapping[str, object]]:
    """Settings by function; what a function leaves is not there."""
    return tomllib.loads((files(__package__) / "presets.toml").read_text())


def preset(function: str) -> Mapping[str, object] | None:
    """What a function sets; None: it is not known."""
    return presets().get(function)


def base_of(family: str, flavor: str) -> str | None:
    """The function to start from for a flavor; None: the family has none that is known."""
    for function, settings in presets().items():
        if (settings["model.name"], settings["model.flavor"]) == (family, flavor):
            return function
    return _NEAREST.get((family, flavor))
