"""One zygote and one set of references for all trainings of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.training import Oracle
from tests.patience import COMPILING_PATIENCE_S
from tests.trials.zygote import Zygote


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    zygote = Zygote(deadline_s=COMPILING_PATIENCE_S)
    yield Oracle(zygote, tmp_path_factory.mktemp("oracle"))
    zygote.close()
