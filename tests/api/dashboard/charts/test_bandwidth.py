from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from markupsafe import Markup

from api.dashboard.charts.bandwidth import bandwidth_picture
from api.dashboard.views.bandwidth import BandwidthView
from api.examples.explanations import bandwidth_curve
from autotuner.search.explain.bandwidth_curve import BandwidthCurve
from tests.api.dashboard.charts.drawn import each as each_of
from tests.api.dashboard.charts.drawn import number, one

CURVE = bandwidth_curve()


def drawn(curve: BandwidthCurve = CURVE) -> str:
    return str(bandwidth_picture(curve, 896))


def test_each_way_that_fits_is_a_line_with_its_name_and_lossy_ones_look_otherwise() -> None:
    picture = drawn()
    assert picture.count('class="way own"') == picture.count('class="way lossy"') == 2  # for a desk and for a phone
    assert ">replicas<" in picture
    assert ">demo<" in picture
    large = replace(CURVE.ways[1], fits=False)
    assert 'class="way lossy"' not in drawn(replace(CURVE, ways=(CURVE.ways[0], large)))


def test_the_network_that_the_cluster_has_is_marked() -> None:
    assert "here 10 Gbit/s" in drawn()


def test_a_strip_says_which_way_takes_the_shortest_step() -> None:
    picture = drawn()
    assert picture.count("demo takes the shortest step") == 2
    assert picture.count("replicas takes the shortest step") == 2


def test_a_curve_without_ways_is_no_section() -> None:
    nothing = replace(CURVE, ways=(), spans=())
    assert drawn(nothing) == ""
    assert BandwidthView.of(nothing, 896) is None
    shown = BandwidthView.of(CURVE, 896)
    assert shown is not None
    assert shown.sentences[0].startswith("Shortest predicted step")


def test_names_of_lines_that_begin_together_stand_above_them_and_apart() -> None:
    first = CURVE.ways[0]
    ways = tuple(replace(first, name=f"way {number}") for number in range(4))
    wide = Markup(str(drawn(replace(CURVE, ways=ways, own="way 0"))).split('<div class="hide-wide"')[0])
    begins = float(one(wide, "way own").attrib["d"].partition("L")[0].split()[1])
    heights = sorted(number(each, "y") for each in each_of(wide, "halo ink-text"))
    assert all(after - before > 13.8 for before, after in pairwise(heights))  # rows of 14, rounded
    assert heights[-1] < begins
    title = 6 * len("step, predicted")  # pixels of the axis' title, which the names of many lines come up to
    assert all(number(each, "x") >= title for each in each_of(wide, "halo ink-text"))
