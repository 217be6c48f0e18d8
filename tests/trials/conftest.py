"""One zygote for all trials of the suite, and the single-process runs that the others are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotuner.domain.choice import Precision
from autotuner.domain.model import TransformerSpec
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.torchrun import Torchrun
from tests.builders import cpu_layout
from tests.trials.specs import trial_spec
from tests.trials.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    process = Zygote()
    yield process
    process.close()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The launcher's own way to have a zygote, kept over the tests as it is over trials."""
    starter = Forks()
    yield starter
    starter.close()


@pytest.fixture(params=["zygote", "torchrun"])
def launcher(request: pytest.FixtureRequest, forks: Forks, tmp_path: Path) -> LocalLauncher:
    """A launcher with each way to start ranks; its files lie in ``tmp_path / "work"``."""
    return LocalLauncher(tmp_path / "work", forks if request.param == "zygote" else Torchrun())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What one process computes with all sequences in one micro-batch."""

    losses: tuple[float, ...]
    gradients: dict[str, Tensor]


@pytest.fixture(scope="session")
def reference(
    zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[TransformerSpec, Precision], Reference]:
    known: dict[tuple[TransformerSpec, Precision], Reference] = {}

    def run(model: TransformerSpec, precision: Precision) -> Reference:
        folder: Path = tmp_path_factory.mktemp("reference")
        spec = trial_spec(cpu_layout(micro_batch_size=8, precision=precision), model=model)
        losses = zygote.run(spec, folder / "trial").measurement.losses
        assert zygote.run(spec, folder / "gradients", task="gradients").exit_codes == (0,)
        return Reference(losses=losses, gradients=torch.load(folder / "gradients" / "0.pt"))

    def lookup(model: TransformerSpec, precision: Precision) -> Reference:
        if (model, precision) not in known:
            known[model, precision] = run(model, precision)
        return known[model, precision]

    return lookup
