"""Layers of two kinds, as Megatron writes them: ``([0]*3+[1]*58)``, or every how many layers.

Source: training/arguments.py of core_v0.16.1, moe_freq_type and its like, which hand the text to Python; here it is
read, and nothing is evaluated.
"""

from __future__ import annotations

import re
from itertools import groupby

from autotuner.core.errors import InvalidInput

_TOKEN = re.compile(r"\s*(\[[01,\s]*\]|\*\s*\d{1,5}|[()+])")
_LONGEST = 400
"""Characters that are read; nothing nests deeper than a few parentheses."""

MOST_LAYERS = 10_000
"""More are taken for a slip, and would only fill the memory."""


def pattern_text(layers: list[int]) -> str:
    """Runs of equal layers: ``[0]*3+[1]*58``."""
    return "+".join(f"[{kind}]*{len(list(same))}" for kind, same in groupby(layers))


def layer_pattern(name: str, text: str, num_layers: int, *, full_every: bool = False) -> list[int]:
    """1 for each layer of the special kind, 0 for the others.

    Args:
        name: What the setting is called, for complaints.
        text: A number N, or lists with sums and products.
        num_layers: How many there have to be.
        full_every: N means that all but each N-th layer are special (windows); else that each N-th is, from the first.

    Raises:
        InvalidInput: It is neither, or has another number of layers.
    """
    plain = text.strip().strip("'\"")
    if plain.isdecimal() and 0 < len(plain) < 6 and int(plain) > 0:
        every = int(plain)
        if full_every:
            return [int((layer + 1) % every != 0) for layer in range(num_layers)]
        return [int(layer % every == 0) for layer in range(num_layers)]
    layers = _summed(name, plain)
    if len(layers) != num_layers:
        raise InvalidInput(name, text, f"must have {num_layers} layers, and has {len(layers)}")
    return layers


def _summed(name: str, text: str) -> list[int]:
    """Lists, sums, products and parentheses; a list as Python prints it, too."""
    tokens = _TOKEN.findall(text) if len(text) <= _LONGEST or "[" not in text[1:] else []
    if not tokens or "".join("".join(tokens).split()) != "".join(text.split()):
        raise InvalidInput(name, text, "must be a number, or lists such as [0]*3+[1]*58")
    try:
        return _Lists(tokens).total()
    except (IndexError, ValueError, RecursionError):
        raise InvalidInput(name, text, "must be a number, or lists such as [0]*3+[1]*58") from None


class _Lists:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._rest = tokens[::-1]

    def total(self) -> list[int]:
        """All of it.

        Raises:
            ValueError: A token stands where none may, or there are too many layers.
        """
        layers = self._sum()
        if self._rest:
            raise ValueError(self._rest[-1])
        return layers

    def _sum(self) -> list[int]:
        layers = self._product()
        while self._rest and self._rest[-1] == "+":
            self._rest.pop()
            layers = [*layers, *self._product()]
        return layers

    def _product(self) -> list[int]:
        layers = self._one()
        while self._rest and self._rest[-1].startswith("*"):
            times = int(self._rest.pop()[1:])
            if times * len(layers) > MOST_LAYERS:
                raise ValueError(times)
            layers = layers * times
        return layers

    def _one(self) -> list[int]:
        token = self._rest.pop()
        if token != "(":
            return [int(kind) for kind in re.findall("[01]", token)] if token.startswith("[") else _refused(token)
        layers = self._sum()
        if self._rest.pop() != ")":
            raise ValueError(token)
        return layers


def _refused(token: str) -> list[int]:
    raise ValueError(token)
