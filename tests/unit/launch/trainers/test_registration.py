"""Trainers as an operator's file registers them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.trainers.progress import Reported, ReportedStep
from autotuner.launch.trainers.registration import RegisteredTrainer, read_trainers
from tests.targets import TARGETS_OF_TESTS
from tests.unit.launch.trainers.log_readers.specs import spec


class Loud:
    """A reader for which every line is a step."""

    def __init__(self, spec: TrialSpec) -> None:
        self.layout = spec.layout

    def read(self, line: str) -> Reported | None:
        return ReportedStep(step=len(line))


def registered(folder: Path, text: str) -> dict[str, RegisteredTrainer]:
    path = folder / "trainers.toml"
    path.write_text(text)
    return read_trainers(path, TARGETS_OF_TESTS, {"loud": Loud})


MINE = """
[mine]
format = "arguments"
command = ["{python}", "train.py", "--steps={steps}", "{arguments}"]
"""


def test_a_trainer_needs_a_format_and_a_command_and_each_run_has_a_reader_of_its_own(tmp_path: Path) -> None:
    mine = registered(tmp_path, MINE)["mine"]
    assert (mine.trainer.name, mine.trainer.format) == ("mine", ExportFormat.ARGUMENTS)
    assert mine.trainer.stack == "torch"
    assert mine.command == ("{python}", "train.py", "--steps={steps}", "{arguments}")
    assert mine.working_directory == tmp_path
    assert mine.new_reader(spec()) is None
    mine = registered(tmp_path, MINE + 'reports = "loud"')["mine"]
    assert mine.new_reader(spec()) is not mine.new_reader(spec())
    assert list(registered(tmp_path, MINE + MINE.replace("[mine]", "[another]"))) == ["mine", "another"]
    with pytest.raises(InvalidInput, match=r"nowhere\.toml"):
        read_trainers(tmp_path / "nowhere.toml", TARGETS_OF_TESTS)


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    text = (
        MINE
        + """
    working_directory = "code"
    environment = ["HF_HOME"]
    reports = "loud"
    stack = "megatron"
    options = ["tensor_parallel_degree"]
    variables = { TOKENIZERS_PARALLELISM = "false" }
    fixed = { precision = "bf16" }
    values = { tensor_parallel_degree = [1, 2] }
    """
    )
    mine = registered(tmp_path, text)["mine"]
    assert mine.working_directory == tmp_path / "code"
    assert (mine.environment, mine.variables) == (("HF_HOME",), {"TOKENIZERS_PARALLELISM": "false"})
    assert (mine.trainer.stack, mine.trainer.options) == ("megatron", ("tensor_parallel_degree",))
    assert mine.trainer.fixed == {"precision": "bf16"}
    assert mine.trainer.values == {"tensor_parallel_degree": (1, 2)}
    assert isinstance(mine.new_reader(spec()), Loud)


@pytest.mark.parametrize(
    ("change", "key", "rule", "nearest"),
    [
        (('format = "arguments"', ""), "format", "is required", None),
        (('"arguments"', '"argument"'), "format", "must be one of arguments, deepspeed", "arguments"),
        (('"arguments"', '"sbatch"'), "format", "must be one of", None),
        (("command", "comand"), "comand", "is not a known field (did you mean command?)", None),
        (('command = ["{python}"', 'command = ["{python3}"'), "command.0", "unknown placeholder", "{python}"),
        (("{steps}", "{step}"), "command.2", "unknown placeholder", "--steps={steps}"),
        (("{steps}", "{}"), "command.2", "unknown placeholder", None),
        (("{steps}", "{steps.real}"), "command.2", "unknown placeholder", "--steps={steps}"),
        (("{steps}", "{steps:>9}"), "command.2", "only names of placeholders between", "{steps}"),
        (("{steps}", "{steps!r}"), "command.2", "only names of placeholders between", "{steps}"),
        (("{steps}", "{steps"), "command.2", "is not a template", None),
        (('"{arguments}"', '"--all={arguments}"'), "command.3", "must contain only this placeholder", "{arguments}"),
        (('["{python}", "train.py", "--steps={steps}", "{arguments}"]', "[]"), "command", "must be a list", None),
        (
            ('["{python}", "train.py", "--steps={steps}", "{arguments}"]', '"sh -c x"'),
            "command",
            "must be a list",
            None,
        ),
        (('["{python}", ', '["{arguments}", '), "command.0", "must be the name of a program", None),
        (("\n]", "\n"), "AUTOTUNER_TRAINERS", "TOML", None),
    ],
)
def test_an_illegal_trainer_table_is_refused_with_file_trainer_key_and_rule(
    tmp_path: Path, change: tuple[str, str], key: str, rule: str, nearest: object
) -> None:
    text = MINE.replace(*change) if change[0] in MINE else MINE + "]"
    with pytest.raises(InvalidInput) as caught:
        registered(tmp_path, text)
    error = caught.value
    assert error.field in (f"{tmp_path}/trainers.toml: mine.{key}", key)
    assert str(tmp_path) in str(error)
    assert rule in error.rule
    assert nearest is None or error.nearest == nearest


@pytest.mark.parametrize(
    ("line", "key", "nearest"),
    [
        ('reports = "reprter"', "reports", "reporter"),
        ('stack = "megatorn"', "stack", "megatron"),
        ('options = ["tensor"]', "options.0", None),
        ('environment = ["A B"]', "environment.0", None),
        ('environment = ["AUTOTUNER_DATABASE_URL"]', "environment.0", None),
        ('variables = { CUDA_VISIBLE_DEVICES = "0" }', "variables.CUDA_VISIBLE_DEVICES", None),
        ("variables = { A = 1 }", "variables.A", None),
        ('variables = { A = "\\u0000" }', "variables.A", None),
        ('fixed = { precision = "bf17" }', "fixed.precision", "bf16"),
        ("options = 3", "options", None),
    ],
)
def test_every_other_key_is_held_to_its_rule(tmp_path: Path, line: str, key: str, nearest: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        registered(tmp_path, MINE + line)
    assert caught.value.field == f"{tmp_path}/trainers.toml: mine.{key}"
    assert nearest is None or caught.value.nearest == nearest


@pytest.mark.parametrize("name", ["../mine", "a b", ""])
def test_a_trainers_name_can_stand_in_a_request(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="letters, digits"):
        registered(tmp_path, MINE.replace("[mine]", f'["{name}"]'))


@given(text=st.text())
def test_any_text_is_trainers_or_wrong_input(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    for written in (text, MINE + text, MINE.replace("{steps}", text)):
        try:
            (folder / "any.toml").write_text(written, encoding="utf-8", errors="surrogatepass")
            read_trainers(folder / "any.toml", TARGETS_OF_TESTS)
        except InvalidInput:
            pass
