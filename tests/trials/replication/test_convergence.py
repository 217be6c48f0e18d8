"""What exchanges learn: a short run of ``bench.lossy_convergence``, which says what longer ones find."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.lossy_convergence import Training
from tests.trials.zygote import Zygote


def learnt(exchange: str, zygote: Zygote, folder: Path) -> Training:
    folder.mkdir()
    (folder / "exchange").write_text(exchange)
    run = zygote.have_done("tests.trials.replication.tasks:learns", folder, 4)
    assert set(run.exit_codes) == {0}, run.logs
    found: Training = torch.load(folder / "0.pt")
    return found


@pytest.mark.oracle
def test_a_sixteenth_of_the_exchange_teaches_replicas_what_only_others_read(zygote: Zygote, tmp_path: Path) -> None:
    names = ("full", "none", "demo 1/16", "random 1/16")
    full, none, demo, random = (learnt(name, zygote, tmp_path / str(at)) for at, name in enumerate(names))
    assert full["payload_bytes"] == 16 * random["payload_bytes"]
    assert demo["payload_bytes"] == pytest.approx(1.25 * random["payload_bytes"], rel=1e-3)  # a byte beside four
    assert none["payload_bytes"] == 0
    # 60 steps of one seed: full 2.10, demo 2.40, random 3.38, none 3.77 nats; other machines round otherwise
    assert full["validation_loss"] < demo["validation_loss"] < 3.1 < none["validation_loss"]
