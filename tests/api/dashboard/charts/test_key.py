from __future__ import annotations

from typing import get_args

from api.dashboard.charts.key import Glyph, key


def test_every_mark_has_a_picture_and_its_meaning_is_escaped() -> None:
    shown = key(*((glyph, f"<{glyph}>") for glyph in get_args(Glyph)))
    assert shown.count("<svg") == len(get_args(Glyph))
    assert "&lt;limit&gt;" in shown
    assert "None" not in shown
