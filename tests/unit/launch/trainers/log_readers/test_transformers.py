from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest

from autotuner.launch.trainers.log_readers.transformers import TransformersLog
from autotuner.launch.trainers.reported import ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec


def texts(loss: str) -> str:
    return f"{{'loss': '{loss}', 'grad_norm': '0.7303', 'learning_rate': '0.001', 'epoch': '0.1667'}}"


def numbers(loss: str) -> str:
    return f"{{'loss': {loss}, 'learning_rate': 0.00028994575745834946, 'epoch': 0.22}}"


def bar(step: int) -> str:
    return f"\r  4%|▎         | {step}/240 [00:12<01:07,  1.87it/s]"


def steps(lines: Iterable[str]) -> list[ReportedStep]:
    log = TransformersLog(spec())
    return [step for line in lines if (step := log.read(line))]


@pytest.mark.parametrize("shape", [texts, numbers])
def test_losses_are_read_from_texts_and_from_numbers(shape: Callable[[str], str]) -> None:
    assert steps([shape("6.251"), shape("6.25e-05")]) == [
        ReportedStep(step=1, loss=6.251),
        ReportedStep(step=2, loss=6.25e-05),
    ]


@pytest.mark.parametrize("shape", [texts, numbers])
def test_a_loss_that_is_no_number_is_reported_as_one(shape: Callable[[str], str]) -> None:
    (step,) = steps([shape("nan")])
    assert step.loss is not None
    assert math.isnan(step.loss)


def test_the_bar_after_a_line_tells_how_many_steps_lie_between_lines() -> None:
    blank = "\r" + 40 * " " + "\r"
    lines = [
        bar(0) + bar(9) + blank + texts("6.2"),
        bar(10) + bar(11) + bar(19) + blank + texts("6.1"),
        bar(20) + bar(29) + blank + texts("6.0"),
    ]
    assert [(step.step, step.num_steps) for step in steps(lines)] == [(1, 1), (20, 10), (30, 10)]


def test_a_bar_on_a_line_of_its_own_counts_as_well() -> None:
    lines = [texts("6.2"), bar(5), bar(6), texts("6.1"), bar(10), texts("6.0")]
    assert [(step.step, step.num_steps) for step in steps(lines)] == [(1, 1), (10, 5), (15, 5)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{'train_runtime': '0.196', 'train_samples_per_second': '244.9', 'train_loss': '6.252', 'epoch': '1'}",
        "{'eval_loss': 1.5, 'eval_runtime': 2.5, 'epoch': 1.0}",
        "***** Running training *****",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert steps([line]) == []
