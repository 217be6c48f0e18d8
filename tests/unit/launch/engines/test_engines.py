from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.registration import EngineRegistration, ask_engines, check_engine_named, read_engines
from tests.builders import cpu_cluster
from tests.unit.launch.engines.scripted import RUNNING, Scripted, launcher


# ---------------------------------------------------------------- known
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


# ---------------------------------------------------------------- Engines as an operator registers them
EMULATED = 'kind = "emulated"\nfolder = "/tmp/jobs"\n'


def read(tmp_path: Path, text: str) -> dict[str, EngineRegistration]:
    (tmp_path / "engines.toml").write_text(text)
    return read_engines(tmp_path / "engines.toml")


def test_every_table_is_an_engine_with_what_all_have_and_what_its_kind_has(tmp_path: Path) -> None:
    said = f'[nodes]\n{EMULATED}num_nodes = 4\nmax_parallel_trials = 2\nqueues = ["short", "long"]\n'
    registration = read(tmp_path, said)["nodes"]
    assert (registration.kind, registration.settings.max_parallel_trials) == ("emulated", 2)
    assert registration.own.num_nodes == 4
    assert registration.engine().check() == "4 emulated nodes on this machine"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a", "AUTOTUNER_ENGINES"),
        ("a = " + "[" * 5_000, "AUTOTUNER_ENGINES"),
        ("[a]", "a.kind.*must be one of"),
        ('[a]\nkind = "slrum"', "slurm"),
        ("a = 1", "must be a table"),
        (f"[local]\n{EMULATED}", "local.name"),
        (f"[simulated]\n{EMULATED}", "simulated.name"),
        (f'["a b"]\n{EMULATED}', "a b.name"),
        (f"[a]\n{EMULATED}max_parallel_trials = 0", "a.max_parallel_trials"),
        (f"[a]\n{EMULATED}partitions = 1", "partitions"),
        ('[a]\nkind = "emulated"\nfolder = ""', "a.folder"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_engine(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.toml"):
        read_engines(tmp_path / "nowhere.toml")


def test_a_cluster_may_name_the_queues_that_its_operator_lists_and_no_others(tmp_path: Path) -> None:
    registration = read(tmp_path, f'[nodes]\n{EMULATED}queues = ["short", "long"]\n')["nodes"]
    assert registration.refuses(replace(cpu_cluster(), queue="long")) is None
    assert registration.refuses(cpu_cluster()) is None
    assert "no queue night" in str(registration.refuses(replace(cpu_cluster(), queue="night")))


def test_jobs_of_a_cluster_that_names_no_queue_wait_in_the_first(tmp_path: Path) -> None:
    registration = read(tmp_path, f'[nodes]\n{EMULATED}queues = ["short", "long"]\n')["nodes"]
    assert registration.placed(cpu_cluster()).queue == "short"
    assert registration.placed(replace(cpu_cluster(), queue="long")).queue == "long"
    assert read(tmp_path, f"[nodes]\n{EMULATED}")["nodes"].placed(cpu_cluster()).queue == ""
