from __future__ import annotations

import pytest

from tests.unit.cli.command_line import CommandLine

RUN = ("--model", "llama-3-8b", "--tokens", "100B", "--global-batch", "256")
SMALL = ("--accelerators", "h100", "--sizes", "16", "--space", '{"recompute": ["none"], "tensor_parallel_degree": [1]}')


def test_a_plan_says_what_to_take_and_what_it_takes(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--deadline", "30d")
    assert "Take h100-sxm:16: " in text
    assert "keeps the deadline of 30 days" in text
    assert "What more would buy" in text
    assert "twice the network" in text
    assert "Modal price list, per second times 3,600, 2026-05-07" in text
    assert "arXiv 2407.21783" in text


def test_own_prices_are_called_yours(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--price", "h100=2.1")
    assert "2.10" in text
    assert "yours" in text


def test_a_plan_as_json_holds_all_clusters_the_best_first(cli: CommandLine) -> None:
    found = cli.run_json("plan", *RUN, *SMALL, "--price-limit", "50K", "--network", "1,2")
    contenders = found["answer"]["contenders"]
    assert sorted(one["cluster"] for one in contenders) == ["h100-sxm:16", "h100-sxm:16 2 x network"]
    assert found["goal"]["price_limit"] == 50_000


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (("--deadline", "30"), "30d", 2),
        (("--price", "h100"), "h100=2.1", 2),
        (("--sizes", "many"), "must be a number", 2),
        (("--accelerators", "h10"), "h100", 3),
    ],
)
def test_what_is_wrong_is_said_with_what_is_near(
    cli: CommandLine, options: tuple[str, str], said: str, code: int
) -> None:
    assert said in cli.error_of("plan", *RUN, *options, code=code)
