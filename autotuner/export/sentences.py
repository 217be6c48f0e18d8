"""Sentences that several targets say of a layout."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.core.layout import OPTIONS, Layout


def decided_in_code(fields: Iterable[str], layout: Layout, whose: str) -> str:
    """What is not written since code decides it, with the values of the layout."""
    values = [f"{name} ({_word(name, layout)})" for name in OPTIONS if name in frozenset(fields)]
    return f"{whose} decides {', '.join(values)}"


def _word(name: str, layout: Layout) -> str:
    plain = OPTIONS[name].to_plain(getattr(layout, name))
    return ("on" if plain else "off") if isinstance(plain, bool) else str(plain)
