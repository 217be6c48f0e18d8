"""Hugging Face's Trainer on DeepSpeed, which nobody here wrote, swept by the service as an operator runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.api.bodies import CPU
from tests.builders import cpu_cluster
from tests.patience import PATIENCE_S
from tests.system.service import Service, measuring, until

_REGISTERED = Path(__file__).parents[2] / "examples" / "trainers.toml"

_SEVENTH_DIGIT = 5e-7
"""fp32 keeps seven digits, and sums over ranks take their terms in another order."""


def _swept(service: Service, trainer: str, num_ranks: int, **space: Any) -> list[dict[str, Any]]:
    """Trials of a sweep that tries all of its layouts."""
    body = {
        "trainer": trainer,
        **CPU,
        "cluster": to_plain(cpu_cluster(num_ranks)),
        "space": space,
        "budget": {"num_trials": 20, "prune_below": 0.0, "min_gain": 0.0},
        "trial": measuring(3),
    }
    sweep_id = service.post("/sweeps", body)["id"]
    until(
        "the sweep to end",
        lambda: service.get(f"/sweeps/{sweep_id}")["state"] in ("complete", "failed"),
        4 * PATIENCE_S,
    )
    listed = service.trials(sweep_id)
    return [service.get(f"/trials/{trial['id']}") for trial in listed]


@pytest.mark.oracle
def test_zero_s_stages_train_to_equal_losses_on_one_rank_and_on_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(_REGISTERED))
    with Service(tmp_path) as service:
        one, two = partial(_swept, service, "hugging-face", 1), partial(_swept, service, "hugging-face", 2)
        trials = one(micro_batch_size=[8], recompute=["none"])
        trials += two(micro_batch_size=[4], recompute=["none"], reshard_after_forward=[False])
        trials += two(micro_batch_size=[2], recompute=["full"], shard_level=["gradients"])
        plain = {"micro_batch_size": [2], "precision": ["fp32"], "optimizer_kernel": ["foreach"]}
        trials += _swept(
            service,
            "hugging-face-arguments",
            2,
            **plain,
            recompute=["full"],
            recompute_every=[2],
            shard_level=["none", "optimizer"],
        )
    assert {trial["state"] for trial in trials} == {"complete"}, [trial["failure"] for trial in trials]
    levels = {(trial["layout"]["shard_level"], trial["layout"]["data_parallel_shard_degree"]) for trial in trials}
    assert levels == {("none", 1), ("optimizer", 2), ("gradients", 2), ("parameters", 2)}
    first = trials[0]["measurement"]["losses"]
    for trial in trials:
        assert trial["measurement"]["losses"] == pytest.approx(first, rel=_SEVENTH_DIGIT)
