"""Times the enumeration and prediction of every layout of a 70B model on 1,024 H100s; the limit is one second.

``python -m bench.space_speed`` prints the default space and one with every schedule, kernel, precision and context
degree, best of five each.
"""

from __future__ import annotations

import time

from autotuner.catalog.load import load_cluster, load_model
from autotuner.costmodel.predict import predict
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, ShardLevel
from autotuner.domain.legality import Job
from autotuner.domain.sweep import SearchSpace
from autotuner.domain.workload import Workload
from autotuner.search.space import legal_layouts

LIMIT_S = 1.0

WIDE = SearchSpace(
    context_parallel_degree=None,
    pipeline_schedule=tuple(PipelineSchedule),
    shard_level=tuple(ShardLevel),
    attention_kernel=tuple(AttentionKernel),
    precision=(Precision.BF16, Precision.FP8),
)


def main() -> None:
    """Print layouts, seconds and the ratio to the limit, for both spaces."""
    job = Job(
        model=load_model("llama-3-70b"),
        cluster=load_cluster("h100:1024"),
        workload=Workload(seq_len=8192, global_batch_size=4096),
    )
    for name, space in (("default", SearchSpace()), ("wide", WIDE)):
        num_layouts, seconds = min((_once(job, space) for _ in range(5)), key=lambda run: run[1])
        print(  # noqa: T201  # a benchmark prints its result
            f"{name:8s} {num_layouts:8d} layouts  {seconds:.3f} s  {seconds / LIMIT_S:.2f} of the limit"
        )


def _once(job: Job, space: SearchSpace) -> tuple[int, float]:
    start = time.perf_counter()
    layouts = legal_layouts(job, space)
    predict(layouts, job)
    return len(layouts), time.perf_counter() - start


if __name__ == "__main__":
    main()
