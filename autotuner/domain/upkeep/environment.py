"""What differs between two environments that trials recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["EnvironmentChange", "environment_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentChange:
    """One fact that is not what it was.

    Attributes:
        name: Of the fact, as trials record it.
        then: What it was; None where it was not recorded.
        now: What it is; None where it is not recorded.
    """

    name: str
    then: str | None
    now: str | None

    def __str__(self) -> str:
        match self.then, self.now:
            case None, now:
                return f"{self.name} is {now} and was not set"
            case then, None:
                return f"{self.name} was {then} and is not set"
        return f"{self.name} was {self.then} and is {self.now}"


def environment_changes(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[EnvironmentChange, ...]:
    """Every fact that differs, by name."""
    names = sorted(then.keys() | now.keys())
    pairs = ((name, then.get(name), now.get(name)) for name in names)
    return tuple(EnvironmentChange(name=name, then=old, now=new) for name, old, new in pairs if old != new)
