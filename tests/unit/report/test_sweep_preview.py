"""What is said of a sweep before it is asked for: the same figures on every surface."""

from __future__ import annotations

import json
from typing import Any

from autotuner.core import documents
from autotuner.core.sweep_requests import SweepCreate
from autotuner.door import Autotuner
from autotuner.report.sweep_preview import sweep_preview_report
from autotuner.search.sweep_preview import preview
from tests.unit.report.surfaces import surfaces

JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 2048, "global_batch_size": 32},
}
SPACE = {"precision": ["bf16"], "compiled": [False], "tensor_parallel_degree": [1, 16]}


def test_a_preview_says_the_same_on_every_surface() -> None:
    request = Autotuner().sweep(documents.read(SweepCreate, JOB | {"space": SPACE}))
    found = preview(request)
    assert found.sieved is not None
    best = found.predicted.items[0].prediction
    figures = (
        f"{100 * best.mfu:.1f}",
        f"{best.peak_bytes / 1e9:.1f} GB",
        f"{found.sieved.num_candidates:,}",
        f"{found.predicted.num_legal:,}",
        f"{found.sieved.falls[0].num_layouts:,}",
    )
    for text in surfaces(sweep_preview_report(request, found)):
        assert [figure for figure in figures if figure not in text] == []
    assert json.loads(json.dumps(documents.write(found)))["predicted"]["num_legal"] == found.predicted.num_legal


def test_where_nothing_fits_a_preview_says_what_would_help_once_that_is_known() -> None:
    request = Autotuner().sweep(documents.read(SweepCreate, JOB | {"model": "llama-3-70b", "space": SPACE}))
    at_once, later = (
        surfaces(sweep_preview_report(request, preview(request, with_remedies=known), looks_on=not known))[0]
        for known in (False, True)
    )
    assert "No layout is predicted to fit: the smallest needs" in at_once
    assert ("Looking for what would help" in at_once, "Looking for what would help" in later) == (True, False)
