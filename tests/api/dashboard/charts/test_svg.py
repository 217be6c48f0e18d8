from __future__ import annotations

from api.dashboard.charts.svg import cell, element, for_both, hatched, path, picture, rect, text


def test_what_a_caller_wrote_stays_text() -> None:
    assert "<script>" not in text(0, 0, "<script>")
    assert element("g", "<b>", class_='x"y') == '<g class="x&#34;y">&lt;b&gt;</g>'


def test_attributes_have_their_own_spelling_and_no_more_digits_than_are_seen() -> None:
    drawn = text(1.04, 2.0, "a", anchor="end")
    assert drawn == '<text x="1" y="2" text-anchor="end">a</text>'


def test_a_picture_says_what_it_shows_and_one_in_a_cell_is_silent() -> None:
    assert 'role="img" aria-label="best so far"' in picture(10, 5, [rect(0, 0, 1, 1, "x")], "best so far")
    assert 'viewBox="0 0 10 5"' in picture(10, 5, [], "best so far")
    assert 'aria-hidden="true"' in cell(10, 5, [])


def test_a_hatched_box_stays_inside_its_edges() -> None:
    drawn = hatched(10, 20, 30, 8)
    numbers = [float(part) for part in drawn.split('d="M')[1].split('"')[0].replace("M", " ").replace("L", " ").split()]
    assert all(10 <= x <= 40 for x in numbers[::2])
    assert all(20 <= y <= 28 for y in numbers[1::2])


def test_a_path_goes_from_point_to_point() -> None:
    assert 'd="M0 0L1.5 2"' in path([(0, 0), (1.5, 2)], "x")


def test_a_phone_gets_a_picture_of_its_own() -> None:
    drawn = for_both(lambda width: rect(0, 0, width, 1, "x"), wide=700, narrow=350)
    assert drawn.index('class="hide-narrow"') < drawn.index('width="700"') < drawn.index('width="350"')
