from __future__ import annotations

from api import examples
from autotuner.cli.views.sweeps import sweep_view
from autotuner.domain.wire import to_dict
from tests.unit.cli.views.printed import printed


def test_the_ranking_of_a_running_sweep_begins_below_its_progress() -> None:
    sweep = to_dict(examples.sweep_detail()) | {"state": "running"}
    lines = printed(sweep_view(sweep, to_dict(examples.ranking_page())["items"], []), 100).splitlines()
    assert any(line.startswith("ranking by measured MFU") for line in lines)


def test_an_emulated_trial_is_shown_beside_those_without_a_rank() -> None:
    (item, *_) = to_dict(examples.ranking_page())["items"]
    emulated = {**item, "layout": {**item["layout"], "precision": "fp8_emulated"}}
    text = printed(sweep_view(to_dict(examples.sweep_detail()), [], [emulated]), 200)
    assert "emulated, not ranked" in text
    assert "emulated" not in printed(sweep_view(to_dict(examples.sweep_detail()), [], [item]), 200)
