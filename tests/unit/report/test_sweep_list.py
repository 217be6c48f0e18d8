"""The list of sweeps says the same in a terminal, on a page, in Markdown and in JSON."""

from __future__ import annotations

from dataclasses import replace

from api.dashboard.pages.home import Asked
from autotuner.core import documents
from autotuner.core.health import Trouble, TroubleKind
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepOverview
from autotuner.report.html import Html
from autotuner.report.report import Report
from autotuner.report.sweep_list import short_moment, sweep_list_report
from autotuner.store.options import SweepColumn, SweepFilter, SweepOrder
from tests.unit.core.test_sweep import ENDED
from tests.unit.report.surfaces import surfaces

NOW = 1_764_000_000.0
FOUND = replace(
    ENDED,
    name="nightly",
    best_mfu=0.412,
    best_relative_error=0.01,
    best_tokens_per_s=55_400.0,
    progress=replace(ENDED.progress, accelerator_hours=19.5),
    finished_at=NOW - 3600,
)


def reported(*found: SweepOverview, asked: Asked | None = None, troubles: tuple[Trouble, ...] = ()) -> Report:
    listed = (asked or Asked(where=SweepFilter())).listed(found, len(found))
    return sweep_list_report(listed, troubles, NOW)


def test_a_list_shows_the_figures_of_its_sweeps_on_every_surface() -> None:
    for shown in surfaces(reported(FOUND)):
        for said in ("nightly", FOUND.model, "complete", "41.2", "55.4 ktokens/s", "19.5", "1–1 of 1 sweep"):
            assert said in shown
    written = documents.write(FOUND)
    assert (written["name"], written["state"], written["best_mfu"]) == ("nightly", "complete", 0.412)
    assert (written["best_tokens_per_s"], written["progress"]["accelerator_hours"]) == (55_400.0, 19.5)


def test_an_estimate_is_called_so_and_has_no_interval() -> None:
    for shown in surfaces(reported(replace(FOUND, trial_cluster="small"))):
        assert "41.2 % estimated" in shown
        assert "tried on small" in shown


def test_a_head_leads_to_its_order_and_the_sorted_one_to_the_other_way_round() -> None:
    order = SweepOrder(column=SweepColumn.MFU, is_descending=True)
    page = Html().sections(reported(FOUND, asked=Asked(where=SweepFilter(text="llama"), order=order)))
    assert 'href="/?q=llama&amp;sort=mfu&amp;order=ascending"' in page
    assert 'aria-sort="descending"' in page
    assert 'href="/?q=llama&amp;sort=name&amp;order=ascending"' in page
    assert 'href="/?q=llama"' in page  # the newest first, which is said by nothing


def test_an_empty_list_leads_to_the_list_without_each_filter() -> None:
    asked = Asked(where=SweepFilter(text="llama", state=RunState.FAILED))
    page = Html().sections(reported(asked=asked))
    assert 'href="/?state=failed"' in page
    assert 'href="/?q=llama"' in page
    assert "This page lies behind the last sweep." in Html().sections(
        reported(asked=Asked(where=SweepFilter(), number=9))
    )


def test_what_needs_attention_stands_first_and_leads_there() -> None:
    dead = Trouble(kind=TroubleKind.DELIVERIES_DEAD, subject="chat", name="chat", detail="no answer", at=NOW, count=3)
    report = reported(FOUND, troubles=(dead,))
    assert [section.key for section in report.sections] == ["attention", "all-sweeps"]
    for shown in surfaces(report):
        assert "3 deliveries were given up: no answer" in shown
    assert 'href="/webhooks?state=dead"' in Html().sections(report)


def test_a_time_is_as_short_as_it_can_be_told_from_now() -> None:
    assert short_moment(NOW - 60, NOW) == "15:59"
    assert short_moment(NOW - 86_400, NOW) == "23 Nov 16:00"
    assert short_moment(NOW - 400 * 86_400, NOW) == "20 Oct 2024"
