from __future__ import annotations

from pathlib import Path

from autotuner.core.announcement import AnnouncementKind
from autotuner.runs.delivery import DELAYS_S

TEXT = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()


def test_the_page_on_webhooks_names_every_kind() -> None:
    assert [kind for kind in AnnouncementKind if f"`{kind}`" not in TEXT] == []


def test_the_page_on_webhooks_tells_every_delay() -> None:
    words = "10 s, 1 min, 5 min, 30 min, 2 h, 6 h and\n12 h"
    assert words in TEXT
    units = {"s": 1, "min": 60, "h": 3600}
    pairs = (word.split() for word in words.replace(" and\n", ", ").split(", "))
    assert tuple(int(number) * units[unit] for number, unit in pairs) == DELAYS_S
