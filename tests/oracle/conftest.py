"""One fork server and one set of references for all trainings of the suite."""

from __future__ import annotations

import pytest

from autotuner.launch.forks import Forks
from tests.oracle.training import Oracle
from tests.patience import COMPILING_PATIENCE_S
from tests.trials.fork_server import ForkServer


@pytest.fixture(scope="session")
def oracle(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(ForkServer(forks, deadline_s=COMPILING_PATIENCE_S), tmp_path_factory.mktemp("oracle"))
