"""How far predicted peaks are from dry runs, over the dense layouts that hold every legal pair of options.

``python -m tests.oracle.predicted_memory`` takes the oracle's covering set at the width of an 8B model with 8 layers,
and prints each layout's relative error without what a stack allows for context and fragments, the median and the
largest. Compiled layouts are compared as written, and buckets have PyTorch's size.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace

from autotuner.core.dry_run import DryRunRequest, telling_ranks
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.this_machine import dry_run
from tests.builders import h100_cluster, llama_70b
from tests.oracle.covering import covering_set

MODEL = llama_70b(name="llama-3-8b", num_layers=8, hidden_size=4096, num_heads=32, ffn_size=14336)
"""Of full width; a dry run's time grows with the layers, and both are linear in them."""

_SEQ_LEN = 4096
_NUM_MICRO_BATCHES = 4


def layouts() -> tuple[Layout, ...]:
    """Dense layouts of the covering set, each once, as a dry run runs them."""
    dense = (case.layout for case in covering_set() if case.model.experts is None)
    plain = Layout()
    as_run = (replace(one, compiled=False, gradient_bucket_bytes=plain.gradient_bucket_bytes) for one in dense)
    return tuple(dict.fromkeys(as_run))


def relative_error(layout: Layout) -> float:
    """The predicted peak, less its allowance, to that of the fullest rank of a dry run."""
    batch = _NUM_MICRO_BATCHES * layout.data_parallel_degree * layout.micro_batch_size
    workload = Workload(seq_len=_SEQ_LEN, global_batch_size=batch)
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=layout.world_size)
    predicted = predict_one(layout, Job(model=MODEL, cluster=cluster, workload=workload)).memory
    spec = TrialSpec(trial_id="memory", model=MODEL, workload=workload, layout=layout, device="cuda")
    found = dry_run(DryRunRequest(spec=spec, ranks=telling_ranks(layout), exact=True)).fullest
    return (predicted.total_bytes - predicted.allowance_bytes) / found.held.peak_bytes - 1


def main() -> None:
    """Print a line per layout, and the summary."""
    found = list(_printed_errors())
    sizes = [abs(error) for error in found]
    within = sum(size <= 0.03 for size in sizes)
    sys.stdout.write(
        f"{len(sizes)} dense layouts: median error {100 * statistics.median(sizes):.1f} %, "
        f"largest {100 * max(sizes):.1f} %, {within} within 3 %\n"
    )


def _printed_errors() -> Iterator[float]:
    for layout in layouts():
        error = relative_error(layout)
        sys.stdout.write(f"{100 * error:+6.1f} %  {layout}\n")
        sys.stdout.flush()
        yield error


if __name__ == "__main__":
    main()
