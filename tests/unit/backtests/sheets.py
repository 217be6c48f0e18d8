"""Sheets whose measured runs are known functions of what is predicted of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotuner.backtests.measured_table import Sheet
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.costmodel.predict import predict
from autotuner.search.space.legal import legal_layouts
from tests.builders import tiny_job, tiny_space

JOB = tiny_job(4)

EVERY_LAYOUT = legal_layouts(JOB, tiny_space(), (*RULES, *TRIAL_RULES))

LAYOUTS = EVERY_LAYOUT.take(np.unique(predict(EVERY_LAYOUT, JOB).step_time.total_s, return_index=True)[1][:16])
"""Sixteen layouts, no two of them equally fast, the best predicted first."""

PREDICTED_S: Floats = predict(LAYOUTS, JOB).step_time.total_s


def sheet(measured_s: Floats = PREDICTED_S, layouts: LayoutColumns = LAYOUTS, **changes: Any) -> Sheet:
    """One run per layout; NaN is a run that ran out of memory."""
    values: dict[str, Any] = {"name": "tiny", "job": JOB, "left_out": {}, **changes}
    return Sheet(layouts=layouts, step_time_s=measured_s, **values)


def with_values(values: Floats, changes: dict[int, float]) -> Floats:
    """The column with other values in some rows."""
    changed = values.copy()
    changed[list(changes)] = list(changes.values())
    return changed
