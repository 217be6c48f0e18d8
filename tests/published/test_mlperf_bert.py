"""The BERT record of MLPerf Training v1.1 and v2.0, on 1,024 A100 with buckets clipped before their reduction.

``mlperf_bert_v11_v20.csv`` has a row for every submission: seconds to the target accuracy, as the mean of ten runs
without the best and the worst, with sequences per step (``gbs``). Samsung's are of the open division, with an optimizer
and a batch of their own, so that ratios hold systems and optimizers together.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.published.tables import rows

SEQUENCES_TO_TARGET = 2_932_736
"""Of all ten runs of v2.0 and of five of v1.1, by their logs (mlcommons/training_results_v2.0, Samsung)."""


def seconds(round_: str, submitter: str, num_nodes: int) -> float:
    """Of a system of that many nodes of eight A100."""
    (row,) = (one for one in rows("mlperf_bert_v11_v20") if _is_of(one, round_, submitter, num_nodes))
    return float(row["mean_drop_best_worst_s"])


def _is_of(row: Mapping[str, str], round_: str, submitter: str, num_nodes: int) -> bool:
    has_nodes = f"_n{num_nodes}_" in row["system"]
    return (row["round"], row["submitter"]) == (round_, submitter) and has_nodes


@pytest.mark.parametrize(
    ("round_", "num_nodes", "published_s"), [("v1.1", 128, 25.06), ("v2.0", 128, 22.32), ("v2.0", 171, 21.41)]
)
def test_the_record_is_what_the_rows_say(round_: str, num_nodes: int, published_s: float) -> None:
    assert seconds(round_, "Samsung", num_nodes) == published_s


@pytest.mark.parametrize(
    ("round_", "submitter", "ratio"), [("v1.1", "NVIDIA", 1.33), ("v1.1", "Azure", 1.57), ("v2.0", "NVIDIA", 1.13)]
)
def test_systems_of_as_many_accelerators_took_longer(round_: str, submitter: str, ratio: float) -> None:
    # published with two decimals
    assert seconds(round_, submitter, 128) / seconds(round_, "Samsung", 128) == pytest.approx(ratio, abs=0.005)


def test_the_record_took_179_steps_of_an_eighth_of_a_second() -> None:
    batch = next(int(row["gbs"]) for row in rows("mlperf_bert_v11_v20") if row["submitter"] == "Samsung")
    num_steps = SEQUENCES_TO_TARGET / batch
    assert num_steps == 179
    # 22.32 s over 179, evaluations included
    assert seconds("v2.0", "Samsung", 128) / num_steps == pytest.approx(0.125, abs=5e-4)
