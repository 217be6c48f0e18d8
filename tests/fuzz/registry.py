"""Every target, by its group and its name: ``words.cron``. A group is a module with ``TARGETS``."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

GROUPS = (
    "codec",
    "models",
    "imports",
    "operators",
    "words",
    "logs",
    "reports",
    "engines",
    "tables",
    "edge",
    "topologies",
)


def target_of(name: str) -> Target:
    """The target of that name; only its group is imported."""
    group, _, own = name.partition(".")
    return next(target for target in _targets(group) if target.name == own)


def names() -> list[str]:
    """Of all of them."""
    return [f"{group}.{target.name}" for group in GROUPS for target in _targets(group)]


def _targets(group: str) -> tuple[Target, ...]:
    targets: tuple[Target, ...] = import_module(f"tests.fuzz.{group}").TARGETS
    return targets
