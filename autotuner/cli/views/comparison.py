"""What runs today beside the best that is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.cli.views.rankings import prediction_table

__all__ = ["comparison_view"]


def comparison_view(answer: Mapping[str, Any]) -> RenderableType:
    """PROVISIONAL."""
    return Group(Text(""), prediction_table(answer, title="best predicted"))
