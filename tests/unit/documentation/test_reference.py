"""The generated pages of docs/reference."""

from __future__ import annotations

import pytest

from autotuner.cli.main import EXIT_CODES, app
from autotuner.core.announcement import ANNOUNCEMENT_MEANINGS, AnnouncementKind
from autotuner.core.layout import OPTIONS
from autotuner.exports.formats import FORMATS
from autotuner.service.settings import Settings
from documentation.menu import REFERENCE
from documentation.reference.exports import limits
from documentation.reference.house import floors, house_picture, needed, rooms
from documentation.reference.pages import FOLDER, HOUSE, PAGES, index_page, title_and_summary


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_the_one_of_the_code(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](), "`make reference` writes it"


def test_the_index_of_the_reference_lists_the_pages_that_there_are() -> None:
    assert (FOLDER / "index.md").read_text(encoding="utf-8") == index_page(), "`make reference` writes it"
    assert {page.stem for page in FOLDER.glob("*.md")} <= set(REFERENCE)


def test_the_picture_of_the_house_is_drawn_from_the_imports_of_the_code() -> None:
    assert HOUSE.read_text(encoding="utf-8") == house_picture(), "`make reference` writes it"


def test_rooms_stand_above_those_that_they_import_and_arrows_leave_out_what_a_path_implies() -> None:
    imported = {"cli": frozenset({"door", "core"}), "door": frozenset({"core"}), "core": frozenset[str]()}
    assert floors(imported) == [["core"], ["door"], ["cli"]]
    assert needed(imported)["cli"] == {"door"}
    assert rooms()["core"] == frozenset()


def test_every_page_of_the_reference_says_by_which_command_it_is_generated() -> None:
    for page in FOLDER.glob("*.md"):
        title, summary = title_and_summary(page.read_text(encoding="utf-8"))
        assert title
        assert summary.endswith((".", "?")), page.name
        assert "*Generated " in page.read_text(encoding="utf-8").split("\n## ")[0], page.name


def test_every_option_setting_and_format_has_its_place_in_the_reference() -> None:
    texts = {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in ("layouts", "settings", "exports")}
    assert [name for name in OPTIONS if f"| `{name}` |" not in texts["layouts"]] == []
    assert [name for name in Settings.model_fields if f"| `AUTOTUNER_{name.upper()}` |" not in texts["settings"]] == []
    assert [str(name) for name in FORMATS if f"* {name}: words of release" not in texts["exports"]] == []


def test_every_exit_code_and_announcement_has_a_meaning() -> None:
    epilog = str(app.info.epilog)
    assert [code for code in EXIT_CODES if f"{code} " not in epilog] == []
    assert set(ANNOUNCEMENT_MEANINGS) == set(AnnouncementKind)


def test_a_rule_is_shown_by_a_layout_that_breaks_it() -> None:
    for limit in limits(FORMATS[min(FORMATS)]):
        assert limit.example is None or limit.rule.broken(limit.example, limit.job)
