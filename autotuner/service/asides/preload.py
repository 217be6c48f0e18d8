"""Imported by the fork server alone: what every aside needs, with one thread, so that the forks share it."""

from __future__ import annotations

import gc
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # a process with threads cannot be forked safely

from autotuner.search.answers import warm

warm()
gc.freeze()
