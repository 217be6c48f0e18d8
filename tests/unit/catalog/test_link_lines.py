from __future__ import annotations

import pytest

from autotuner.catalog.link_lines import read_links, written_links
from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkHealth

LINES = {
    "2_3; 0.06": LinkHealth(ends=(2, 3), delay_s=0.06),
    "3_2;0.06; 200mbit": LinkHealth(ends=(2, 3), delay_s=0.06, bandwidth_bytes_per_s=25e6),
    "0_1; dead": LinkHealth(ends=(0, 1), is_dead=True),
    "inter-node; 0.002": LinkHealth(link_class="inter_node", delay_s=0.002),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_a_link_and_what_ails_it(line: str) -> None:
    assert read_links(line) == (LINES[line],)


def test_what_is_written_is_read_back_in_lines_where_these_suffice() -> None:
    links = tuple(LINES.values())
    assert read_links(written_links(links)) == links
    assert len(written_links(links).splitlines()) == len(links)


def test_what_lines_cannot_say_is_written_as_json() -> None:
    links = (LinkHealth(ends=(0, 1), delay_s=0.1, jitter_s=0.02, source="measured"),)
    assert written_links(links).startswith("[")
    assert read_links(written_links(links)) == links


def test_lines_may_be_parted_by_bars_and_remarks_are_left_out() -> None:
    assert len(read_links("# this week\n2_3; 0.06 | 0_1; dead\n\n")) == 2


@pytest.mark.parametrize("text", ["2_3", "x; 1", "2_3; slow", "2_3,3_4; 0.1", "3_3; 1", "[1]", "[", '[{"end": 1}]'])
def test_what_names_no_link_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_links(text)
