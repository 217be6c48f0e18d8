"""Imports the modules that every compute subprocess needs.

Only the fork server imports this, and its forks share them.
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # a process with threads cannot be forked safely

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Precision
from autotuner.core.job import Job
from autotuner.core.workload import Workload
from autotuner.search.explain.choosable import what_if
from autotuner.search.explain.timeline import predicted_timeline
from autotuner.search.preview import Question, best_of_space


def _read_tables() -> None:
    """Compute one answer of each kind, so that every table that such answers need is read before the fork."""
    workload = Workload(seq_len=2048, global_batch_size=8)
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=workload)
    best = best_of_space(Question(job=job, axes={"precision": (Precision.BF16,)}, limit=1))
    answer = what_if(replace(best.items[0].layout, pipeline_parallel_degree=2), job)
    predicted_timeline(answer.layout, job)


_read_tables()
gc.freeze()
