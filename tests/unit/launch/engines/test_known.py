"""Engines that clusters may name, and what each answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.known import ask_engines, check_engine_named
from tests.builders import cpu_cluster
from tests.unit.launch.engines.scripted import RUNNING, Scripted, launcher


class Silent(Scripted):
    """Does not answer."""

    def check(self, queues: Sequence[str] = ()) -> str:
        del queues
        raise EngineUnavailable("connection refused")


def test_an_engine_that_does_not_answer_is_listed_with_its_reason(tmp_path: Path) -> None:
    engine = Silent(RUNNING)
    registered = {"scripted": launcher(tmp_path, engine, queues=("gpu",)).registration}
    *always, silent = ask_engines(registered, {"scripted": engine})
    assert [(one.name, one.answers) for one in always] == [("local", True), ("simulated", True)]
    assert (silent.name, silent.answers, silent.answer) == ("scripted", False, "connection refused")
    assert silent.queues == ("gpu",)


def test_an_engine_without_a_queue_that_it_was_registered_with_is_not_ready_and_names_the_nearest(
    tmp_path: Path,
) -> None:
    engine = Scripted(RUNNING)
    registered = {"scripted": launcher(tmp_path, engine, queues=("gpu", "gpuu")).registration}
    *_, standing = ask_engines(registered, {"scripted": engine})
    assert not standing.answers
    assert standing.answer == "there is no queue gpuu; the nearest is gpu (there are: cpu, gpu)"


@pytest.mark.parametrize(
    ("engine", "queue", "field", "nearest"),
    [
        ("skripted", "", "engine", "scripted"),
        ("scripted", "gpuu", "queue", "gpu"),
        ("local", "gpu", "queue", None),
        ("simulated", "flakey", "queue", "flaky"),
    ],
)
def test_what_is_not_registered_is_refused_with_the_nearest_that_is(
    tmp_path: Path, engine: str, queue: str, field: str, nearest: str | None
) -> None:
    registered = {"scripted": launcher(tmp_path, Scripted(RUNNING), queues=("cpu", "gpu")).registration}
    with pytest.raises(InvalidInput) as refused:
        check_engine_named(cpu_cluster(engine=engine, queue=queue), registered)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)


def test_what_is_registered_may_be_named_with_and_without_a_queue(tmp_path: Path) -> None:
    registered = {"scripted": launcher(tmp_path, Scripted(RUNNING), queues=("cpu", "gpu")).registration}
    for engine, queue in (("local", ""), ("simulated", "flaky"), ("scripted", ""), ("scripted", "gpu")):
        check_engine_named(cpu_cluster(engine=engine, queue=queue), registered)
