"""What two axes leave each other, in closed form beside progressive filling of both kinds of flows."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.network import Network, Tier
from autotuner.core.placement import Spread
from autotuner.costmodel.communication.contention import fair_slowdowns
from autotuner.costmodel.communication.group import LinkTime
from autotuner.costmodel.communication.process_groups import group_of
from autotuner.flows.filling import fair_rates
from autotuner.flows.streams import Floats, Streams
from autotuner.flows.traffic import AxisTraffic
from autotuner.flows.wires import Wires
from tests.builders import h100_cluster


def links(*busy: float) -> list[LinkTime]:
    """A link inside the node, a port, and what is above."""
    return [LinkTime(str(place), np.array([seconds])) for place, seconds in enumerate((1.0, *busy))]


def both(one: list[LinkTime], other: list[LinkTime]) -> tuple[float, float]:
    found = fair_slowdowns(one, other)
    return float(found.one[0]), float(found.other[0])


def test_two_axes_that_fill_a_port_each_get_half_of_it() -> None:
    assert both(links(3, 0), links(1, 0)) == (2, 2)


def test_an_axis_that_thin_uplinks_hold_back_leaves_the_rest_of_the_port_to_the_other() -> None:
    # one is held to a quarter of a port by its uplinks, over which the other has nothing to send
    assert both(links(1, 4), links(1, 0)) == pytest.approx((1, 4 / 3))


def test_an_axis_inside_its_nodes_meets_none() -> None:
    assert both(links(0, 0), links(1, 4)) == (1, 1)


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 6.0])
@pytest.mark.parametrize(("ring", "stage"), [((4, 8), 256), ((16, 8), 512), ((8, 64), 32)])
def test_rings_beside_sends_are_as_much_slower_as_when_all_flows_are_followed(
    oversubscription: float, ring: tuple[int, int], stage: int
) -> None:
    tier = Tier(name="leaf", nodes_per_switch=4, oversubscription=oversubscription)
    cluster = h100_cluster(num_nodes=128, network=Network(name="thin", tiers=(tier,)))
    wires, capacities = Wires(cluster), Wires(cluster).capacities()
    rings = AxisTraffic(wires=wires, spread=Spread(*ring)).rings()
    sends = AxisTraffic(wires=wires, spread=Spread(1024 // stage, stage)).sends()
    together, num_rings = fair_rates(rings.beside(sends), capacities), rings.num_streams
    followed = _slower(rings, together[:num_rings], capacities), _slower(sends, together[num_rings:], capacities)
    groups = [
        group_of(np.array([size]), np.array([stride]), cluster) for size, stride in (ring, (1024 // stage, stage))
    ]
    found = fair_slowdowns(groups[0].ring_links(), groups[1].send_links())
    assert (float(found.one[0]), float(found.other[0])) == pytest.approx(followed, rel=1e-9)


def _slower(alone: Streams, together: Floats, capacities: Floats) -> float:
    return float(fair_rates(alone, capacities).min() / together.min())
