from __future__ import annotations

from pathlib import Path

from autotuner.core.complexity import BURDENS

PAGE = Path(__file__).parents[4] / "docs" / "objectives.md"


def test_the_page_of_objectives_has_every_burden_with_its_weight() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for burden in BURDENS:
        said = f"| {burden.weight:g} | {burden.reason} |"
        assert any(row.startswith(f"| `{burden.option}` |") and row.endswith(said) for row in rows), burden.option
