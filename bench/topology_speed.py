"""Milliseconds per 1,000 layouts with a described network: ``python -m bench.topology_speed``.

Predicts every legal layout of a 70B model on 1,024 and 100,000 H100s, as one switch, as tiers of switches with rails,
and as a torus; the best of five runs, in seconds of processor time. 100,000 are 12,500 nodes, so that borders of
switches lie anywhere between groups.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.network import Network, Tier
from autotuner.core.space import default_space
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict
from autotuner.search.space.legal import legal_layouts

NUM_RUNS = 5
TIERS = (
    Tier(name="leaf", nodes_per_switch=32, oversubscription=2.0, latency_s=1e-6),
    Tier(name="spine", nodes_per_switch=512, oversubscription=2.0, latency_s=2e-6),
)
SIZES = {1_024: (8, 4, 4), 100_000: (20, 25, 25)}
"""Accelerators, and the torus that their nodes would make."""


def main() -> None:
    """Print a line per size and network."""
    for num_accelerators, torus in SIZES.items():
        cluster = replace(load_cluster("h100:1024"), num_nodes=num_accelerators // 8)
        networks = {
            "one switch": None,
            "tiers": Network(name="tiers", tiers=TIERS),
            "rails, hashed": Network(name="rails", tiers=TIERS, num_rails=8, adapts_routes=False),
            "torus": Network(name="torus", torus=torus),
        }
        for name, network in networks.items():
            _report(name, replace(cluster, network=network))


def _report(name: str, cluster: Cluster) -> None:
    job = Job(
        model=load_model("llama-3-70b"),
        cluster=cluster,
        workload=Workload(seq_len=8192, global_batch_size=4 * cluster.world_size),
    )
    blocks = legal_layouts(job, default_space(job))
    turns = LayoutColumns.from_values(vars(blocks) | {"rank_placement": [RankPlacement.CYCLIC] * len(blocks)})
    ms = [_best_ms(table, job) for table in (blocks, turns)]
    size = f"{cluster.world_size:,} ranks, {len(blocks):,} layouts"
    sys.stdout.write(f"{size:32} {name:14} {ms[0]:6.2f} ms per 1,000 layouts, {ms[1]:6.2f} with ranks dealt in turn\n")


def _best_ms(layouts: LayoutColumns, job: Job) -> float:
    def once() -> float:
        start = time.process_time()
        predict(layouts, job)
        return time.process_time() - start

    return 1e6 * min(once() for _ in range(NUM_RUNS)) / len(layouts)


if __name__ == "__main__":
    main()
