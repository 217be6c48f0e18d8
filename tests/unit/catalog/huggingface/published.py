"""Published configurations: the keys that tell the shapes, and where they were read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["CONFIGS", "Published", "config", "published"]

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One configuration."""

    name: str
    source: str
    """Where its values were read."""
    config: dict[str, Any]

    @property
    def model_type(self) -> str:
        """The kind of its language model."""
        inner: dict[str, Any] = self.config.get("text_config", self.config)
        return str(inner["model_type"])


@cache
def published() -> tuple[Published, ...]:
    """All of them, by name."""
    return tuple(
        Published(name=path.stem, **json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(CONFIGS.glob("*.json"))
    )


def config(name: str, **changes: Any) -> dict[str, Any]:
    """The keys of one of them, with changes."""
    (found,) = (one for one in published() if one.name == name)
    return {**found.config, **changes}
