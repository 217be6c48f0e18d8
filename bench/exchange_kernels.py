"""What lossy exchanges compute on a core, predicted beside timed: ``python -m bench.exchange_kernels``.

One rank alone, so that nothing is sent: the replicators of ``autotuner.training.lossy_exchange`` over a momentum of a
million elements, on one thread, the best of twenty.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.distributed as dist

from autotuner.catalog.models import load_model
from autotuner.core.choices import GradientSync
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.step.lossy_exchange import exchange_kernels_s
from autotuner.launch.this_machine import detect_cluster
from autotuner.training.replication.averaging import ParameterAverager
from autotuner.training.replication.demo import DemoReplicator
from autotuner.training.replication.elements import ElementReplicator, random_offsets, striding_offsets
from autotuner.training.replication.replicator import exchanged

NUM_ELEMENTS = 1 << 20
NUM_RUNS = 20


def main() -> None:
    """Print nanoseconds per element of each exchange; which model it would be of makes no difference."""
    torch.set_num_threads(1)
    job = Job(
        model=load_model("llama-3-8b"), cluster=detect_cluster(), workload=Workload(seq_len=64, global_batch_size=8)
    )
    with TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        _print_all(job)
        dist.destroy_process_group()


def _print_all(job: Job) -> None:
    for layout, exchange in _exchanges():
        timed_s = min(_timed_s(exchange) for _ in range(NUM_RUNS))
        x = LayoutColumns.from_layouts([layout])
        predicted_s = float(exchange_kernels_s(x, job, np.array([float(NUM_ELEMENTS)]))[0])
        per_element = 1e9 / NUM_ELEMENTS
        sys.stdout.write(
            f"{layout!s:24} {per_element * timed_s:6.2f} ns per element timed, "
            f"{per_element * predicted_s:6.2f} predicted, ratio {predicted_s / timed_s:.2f}\n"
        )


def _exchanges() -> Iterator[tuple[Layout, Callable[[], object]]]:
    """An exchange that nobody else takes part in, and the layout that it is of; one replica is what is timed."""
    gradient, group = torch.randn(NUM_ELEMENTS), dist.group.WORLD
    assert group is not None
    for chunk, top_k in ((64, 4), (32, 4), (128, 8), (256, 4)):
        demo = DemoReplicator([gradient], group, chunk=chunk, top_k=top_k)
        yield (
            Layout(gradient_sync=GradientSync.DEMO, sync_chunk=chunk, sync_top_k=top_k),
            partial(exchanged, demo, [gradient]),
        )
    for sync, offsets in ((GradientSync.RANDOM, random_offsets), (GradientSync.STRIDING, striding_offsets)):
        elements = ElementReplicator([gradient], group, offsets=offsets)
        yield Layout(gradient_sync=sync), partial(exchanged, elements, [gradient])
    averager = ParameterAverager([gradient.clone()], group, period=1)
    yield Layout(gradient_sync=GradientSync.DILOCO, sync_period=1), averager.after_step


def _timed_s(exchange: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    exchange()
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
