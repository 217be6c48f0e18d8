"""One layer of GPT 22B on 8 A100 against arXiv 2205.05198, table 4: recomputation and sequence parallelism.

No constant was fitted to these times; those of the stack saw two whole steps of the same model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Recompute
from autotuner.costmodel.layer.layer_time import layer_work
from tests.published.korthikanti import Case, cases

CASES = tuple(cases("korthikanti_layer_times"))
PLAIN = {case.layout: case for case in CASES if case.layout.recompute == Recompute.NONE}

FORWARD = 0.05
"""2.8 and 3.0 % are measured, 0.7 % of which may be rounding; the laws of the products alone are known to 2 %."""

BACKWARD = {False: 0.12, True: 0.03}
"""By sequence parallelism: 7.6 to 9.7 % and 0.7 to 0.8 % are measured, always too long.

Without sequence parallelism Megatron-LM reduces the gradient of an input while it multiplies for that of the weight;
no collective of a tensor group is hidden here. The 1.2 to 1.5 ms too much are less than the 1.8 ms of its two.
"""


def milliseconds(case: Case) -> tuple[float, float]:
    """Forward and backward as predicted for this cluster, whose steps are shorter than a typical one's."""
    work, calibration = layer_work(case.columns, case.job, sparse=False), case.job.calibration
    assert calibration is not None
    forward_s, total_s = calibration.factor * float(work.forward_s[0]), calibration.factor * float(work.total_s[0])
    return forward_s * 1e3, (total_s - forward_s) * 1e3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_takes_the_published_time(case: Case) -> None:
    forward_ms, backward_ms = milliseconds(case)
    assert forward_ms == pytest.approx(float(case.row["forward_ms"]), rel=FORWARD)
    assert backward_ms == pytest.approx(float(case.row["backward_ms"]), rel=BACKWARD[case.layout.sequence_parallel])


@pytest.mark.parametrize("case", [c for c in CASES if c not in PLAIN.values()], ids=lambda case: case.name)
def test_recomputation_lengthens_the_backward_by_the_published_time(case: Case) -> None:
    plain = PLAIN[replace(case.layout, recompute=Recompute.NONE)]
    published_ms = float(case.row["backward_ms"]) - float(plain.row["backward_ms"])
    # what is done again is a forward, and known as well; both published times are rounded to 0.1 ms
    predicted_ms = milliseconds(case)[1] - milliseconds(plain)[1]
    assert predicted_ms == pytest.approx(published_ms, abs=0.1 + FORWARD * published_ms)
