"""What tests in several folders need once per session."""

from __future__ import annotations

import gc
import getpass
import multiprocessing.util
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import structlog

from tests.databases import postgres_server
from tests.parts import left_out_by

if TYPE_CHECKING:
    from autotuner.launch.forks import Forks
    from tests.trials.fork_server import ForkServer

for module in ("launcher_contract", "engine_contract"):  # not collected by themselves
    pytest.register_assert_rewrite(f"tests.contracts.{module}")

# before anything imports numpy: many BLAS threads on a few busy cores wait for each other for seconds per product
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# each client of HTTP would read the hundred certificates of this machine for 25 ms; tests of HTTPS bring their own
os.environ.update(SSL_CERT_FILE="", SSL_CERT_DIR=os.devnull)

# hundreds of services compute their predictions themselves; tests of compute subprocesses say how many there are
os.environ.setdefault("AUTOTUNER_COMPUTE_PROCESSES", "0")

# Rich would take seconds to colour each traceback of an exception that a test provokes
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(),
    ]
)

# no test asserts a time, and how fast a busy machine makes up examples says nothing
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# the same examples every time: a failure is of the change that was tested
hypothesis.settings.register_profile("autotuner", derandomize=True, max_examples=10, **UNTIMED)
# `make properties` looks for new counterexamples; derandomize is said because hypothesis sets it wherever CI is set
hypothesis.settings.register_profile("search", derandomize=False, max_examples=1000, print_blob=True, **UNTIMED)
hypothesis.settings.load_profile("autotuner")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let garbage lie while every process of tests collects thousands of them: looking for it takes a third of that.

    What was imported and collected stays to the end, so that nobody need look at it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``--part 2/6`` choose among the slow tests, and ``--record`` record golden outputs."""
    parser.addoption("--part", default="1/1", help="part of the tests marked `oracle`: 2/6")
    parser.addoption("--record", action="store_true", help="record what tests/golden compares with")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other parts of the slow tests."""
    left_out = left_out_by(config.getoption("--part"), items)
    config.hook.pytest_deselected(items=left_out)
    others = set(left_out)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session", autouse=True)
def temporary_folder() -> Iterator[None]:
    """A temporary folder for each of several processes of tests, and so locks of devices of its own.

    With one for all, a trial of one waits for the whole sweep of another: who asks for a lock now and then seldom meets
    the moment in which it is free. What compiling leaves is shared as it was.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    multiprocessing.util.get_temp_dir()  # kept until this process ends, so after the folder is gone
    compiled = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    with tempfile.TemporaryDirectory(prefix="autotuner-tests-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL gives up root and must get through
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(compiled)))
            patch.setattr(tempfile, "tempdir", folder)
            yield


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The launcher's own way to have a fork server, kept over the tests as it is over trials."""
    from autotuner.launch.forks import Forks  # noqa: PLC0415  # which not every test needs

    starter = Forks()
    yield starter
    starter.close()


@pytest.fixture(scope="session")
def fork_server(forks: Forks) -> ForkServer:
    """One process with torch in it, which forks the ranks of all tests."""
    from tests.trials.fork_server import ForkServer  # noqa: PLC0415  # torch takes two seconds, which not every test needs

    return ForkServer(forks)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a real PostgreSQL server, started for the first test that asks."""
    with postgres_server() as url:
        yield url
