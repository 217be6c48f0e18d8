"""The cluster of a row: what tables call accelerators, their nodes and their network."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from autotuner.backtest.cells import Row, UnusableRow, count, maybe_count, text
from autotuner.backtest.sources import Source
from autotuner.catalog.hardware import accelerator_facts, load_accelerator, load_cluster, load_link
from autotuner.core.cluster import Cluster
from autotuner.core.errors import NotFound


def cluster_of(row: Row, source: Source) -> Cluster:
    """The cluster, on the usual nodes and network of its accelerator where neither row nor source tells of others.

    Raises:
        UnusableRow: The accelerator is unknown, or there is no number of them.
        NotFound: No such network.
    """
    accelerator, ranks = _accelerator(text(row, "gpu")), count(row, "num_gpus")
    usual = source.accelerators_per_node or accelerator_facts(accelerator)["accelerators_per_node"].value
    per_node = maybe_count(row, "gpus_per_node") or usual
    per_node = math.gcd(ranks, per_node) if ranks > per_node else ranks
    cluster = load_cluster(f"{accelerator}:{ranks // per_node}x{per_node}")
    network = text(row, "inter_node_link") or source.inter_node_link
    link = load_link(network) if network else cluster.inter_node_link
    if source.congestion is not None:
        link = replace(link, congestion=source.congestion)
    domain = maybe_count(row, "nvlink_domain") or cluster.nvlink_domain or per_node
    return replace(
        cluster,
        inter_node_link=link,
        oversubscription=source.oversubscription,
        nvlink_domain=domain if domain > per_node else None,
    )


_DEVICES = (
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"b300", "b300"),
    (r"b200", "b200"),
    (r"gh200.*144|gh200.*hbm3e", "gh200-144gb"),
    (r"gh200", "gh200"),
    (r"h200", "h200"),
    (r"h800", "h800"),
    (r"h20", "h20"),
    (r"h100.*(nvl(?!ink)|94)", "h100-nvl"),
    (r"h100.*pci", "h100-pcie"),
    (r"h100.*(96|hbm2e|500 ?w)", "h100-96gb"),
    (r"h100.*64 ?g", "h100-64gb"),
    (r"h100", "h100-sxm"),
    (r"a800", "a800"),
    (r"a100.*40 ?g", "a100-40gb"),
    (r"a100.*64 ?g", "a100-64gb"),
    (r"a100", "a100-80gb"),
    (r"l40s", "l40s"),
    (r"v100", "v100"),
    (r"mi355", "mi355x"),
    (r"mi350", "mi350x"),
    (r"mi325", "mi325x"),
    (r"mi300", "mi300x"),
    (r"mi250", "mi250x"),
    (r"4090", "rtx-4090"),
    (r"5090", "rtx-5090"),
    (r"pro ?6000", "rtx-pro-6000"),
    (r"a10(g|$| )", "a10"),
)
"""What a table's name of a GPU holds, letters small and all between words a blank; the first that is found counts."""


def _accelerator(called: str) -> str:
    """The catalog's name for what a table calls a GPU: ``A100-SXM4-80GB``, ``H100-96GB-HBM2e-500W``."""
    name = called.lower().strip("?")
    try:
        return load_accelerator(name).name
    except NotFound as unknown:
        words_of_it = re.sub(r"[^a-z0-9]+", " ", name)
        for pattern, accelerator in _DEVICES:
            if re.search(pattern, words_of_it):
                return accelerator
        raise UnusableRow(f"no accelerator {called!r} in the catalog") from unknown
