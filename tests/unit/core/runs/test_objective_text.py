from __future__ import annotations

import pytest

from autotuner.core.runs.metric import Metric
from autotuner.core.runs.objective import Weight
from autotuner.core.runs.objective_text import metrics_text, profile_text, read_metrics, read_profile
from autotuner.errors import InvalidInput


def test_a_profile_reads_as_it_is_written() -> None:
    profile = (Weight(metric=Metric.MFU, weight=2), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=0.5))
    assert profile_text(profile) == "mfu=2,tokens_per_dollar=0.5"
    assert read_profile(profile_text(profile), "profile") == profile


def test_a_metric_without_a_weight_counts_one() -> None:
    assert read_profile(" mfu , simplicity=3", "profile")[0] == Weight(metric=Metric.MFU, weight=1)


def test_a_front_reads_as_it_is_written() -> None:
    front = (Metric.MFU, Metric.SIMPLICITY)
    assert read_metrics(metrics_text(front), "front") == front


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("token_per_joule=1", "tokens_per_joule"), ("mfu=fast", "mfu=1"), ("mfu=0", None), ("mfu=-1", None)],
)
def test_what_is_no_profile_names_the_nearest(text: str, nearest: str | None) -> None:
    with pytest.raises(InvalidInput) as error:
        read_profile(text, "--profile")
    assert nearest is None or error.value.nearest == nearest
