from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.link import LinkHealth
from autotuner.search.upkeep.retunes.changed_links import links_changed
from tests.builders import h100_cluster

CLUSTER = h100_cluster(2)
LATE = LinkHealth(ends=(0, 1), delay_s=0.06, source="measured 2026-03-02")


@pytest.mark.parametrize(("factor", "changed"), [(0.8, False), (1.2, False), (0.7, True), (2.0, True)])
def test_a_network_has_changed_where_its_bandwidth_did_by_more_than_measurements_do(
    factor: float, changed: bool
) -> None:
    link = CLUSTER.inter_node_link
    now = replace(CLUSTER, inter_node_link=link.with_bandwidth(factor * link.bandwidth_bytes_per_s))
    assert links_changed(CLUSTER, now) is changed


def test_a_link_that_begins_to_ail_is_a_change_and_its_next_measurement_is_none() -> None:
    ailing = CLUSTER.with_link_health((LATE,))
    again = replace(CLUSTER, link_health=(replace(LATE, delay_s=0.0603, source="measured 2026-03-03"),))
    assert links_changed(CLUSTER, ailing)
    assert not links_changed(ailing, again)
    assert links_changed(ailing, CLUSTER)
