from __future__ import annotations

from autotuner.cli.views.explanation import measurement_view
from autotuner.domain.wire import to_dict
from tests.builders import breakdown, measurement
from tests.unit.cli.views.printed import printed


def test_a_measured_trial_is_printed_with_its_interval_its_facts_and_its_parts() -> None:
    text = printed(measurement_view(to_dict(measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3)))), 100)
    for said in ("step 500 ms quartiles 10 ms apart, MFU 25.0 %", "steps: 5 measured", "rank 0 went, 400 ms"):
        assert said in text
    assert [line.split() for line in text.rstrip().splitlines()[-2:]] == [
        ["300", "ms", "75", "%", "backward"],
        ["100", "ms", "25", "%", "forward"],
    ]


def test_a_measured_trial_without_a_breakdown_is_printed_too() -> None:
    assert "under the profiler" not in printed(measurement_view(to_dict(measurement())), 100)
