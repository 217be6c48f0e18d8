"""Clusters on all surfaces: terminal, page, Markdown and JSON have the same figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.reading import TopologyReading
from autotuner.core.cluster_check import CheckFindings, CheckRequest, CheckRun, ClusterCheck
from autotuner.core.documents import write
from autotuner.core.listed import Stored
from autotuner.core.profile import ClusterLinks, profiled, with_links
from autotuner.core.profile_fit import fit_profile
from autotuner.core.run import RunState
from autotuner.report.cluster import cluster_report, clusters_report, topology_report, topology_section
from autotuner.report.report import Report
from tests.builders import cpu_cluster, link_point, pair_measurements
from tests.unit.catalog.topology import published
from tests.unit.report.test_catalog import surfaces

NOW = 1_760_000_000.0
FOUR = replace(cpu_cluster(2), name="pair", num_nodes=4, engine="two", queue="long")
POINTS = tuple(link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2))
TAKEN = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=8, peaks={}, on_cores=True)
PROFILE = with_links(replace(TAKEN, cluster="pair"), POINTS, measured_at=NOW, num_nodes=4)
LINKS = ClusterLinks.of(FOUR, PROFILE)

CHECK = CheckRun(
    id="ck-1",
    kind="check",
    state=RunState.COMPLETE,
    subject="pair",
    created_by="ada",
    created_at=NOW,
    due_at=NOW,
    started_at=NOW + 1,
    finished_at=NOW + 90,
    request=ClusterCheck(cluster=FOUR, request=CheckRequest()),
    progress=CheckFindings(engine="processes").said("trial: job 17 waits", NOW + 6),
)


def test_links_and_checks_have_the_same_figures_on_all_surfaces() -> None:
    report = cluster_report(FOUR, profiled(FOUR, PROFILE).accelerator, LINKS, [CHECK])
    for text in surfaces(report):
        for figure in ("500 MB/s", "800 MB/s", "200 µs", "100 µs", "30 ms", "29.9 ms late", "1 min 29 s", "job 17"):
            assert figure in text, figure
    assert write(LINKS)["items"][1]["measured"]["latency_s"] == 200e-6
    assert write(CHECK)["progress"]["lines"] == [{"at": NOW + 6, "text": "trial: job 17 waits"}]


def test_a_list_says_what_is_measured_and_what_is_unhealthy() -> None:
    report = clusters_report(Stored.by({"pair": "ada"}, [FOUR]), {"pair": CHECK}, {"pair": LINKS})
    for text in surfaces(report):
        for words in ("by ada", "4 × 2 cpu", "queue long", "complete", "measured", "1 unhealthy"):
            assert words in text, words


def test_what_files_say_is_told_with_what_was_assumed() -> None:
    reading = TopologyReading.of([read_topology(published.SLURM_TREE)], load_cluster("h100:48"))
    for text in surfaces(topology_report(reading)):
        assert "6 nodes below a switch" in text
        assert "450 GB/s" in text
        assert "taken as all that it gets" in text


def test_a_topology_is_drawn_and_told_in_words() -> None:
    assert topology_section(FOUR) is None
    section = topology_section(load_cluster("a100:512@dgx-superpod"))
    assert section is not None
    for text in surfaces(Report(headline="", sections=(section,))):
        assert "32 nodes below a switch" in text
