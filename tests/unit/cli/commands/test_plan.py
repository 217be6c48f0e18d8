from __future__ import annotations

import pytest

from tests.unit.cli.command_line import CommandLine

RUN = ("--model", "llama-3-8b", "--tokens", "100B", "--global-batch", "256")
SMALL = ("--accelerators", "h100", "--sizes", "16", "--space", '{"recompute": ["none"], "tensor_parallel_degree": [1]}')


def test_a_plan_says_what_to_take_and_what_it_takes(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--deadline", "30d")
    assert "Take h100-sxm:16. It takes " in text
    assert "The run: 100B tokens in steps of 256 sequences of 8,192 tokens (--tokens, --global-batch," in text
    assert "The chance to meet the deadline of 30 days is" in text
    assert "What more would buy" in text
    assert "twice the network" in text
    assert "Modal price list, per second times 3,600, 2026-05-07" in text
    assert "arXiv 2407.21783" in text


def test_a_price_that_nobody_looked_up_is_said_to_be_recalled(cli: CommandLine) -> None:
    recalled = cli.run("plan", *RUN, "--accelerators", "b200", *SMALL[2:])
    assert "Modal price list, per second times 3,600; recalled, not looked up" in " ".join(recalled.split())
    assert "may differ today. Give yours with --price" in recalled
    assert "recalled" not in cli.run("plan", *RUN, *SMALL)


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
        (("--price", "2.3"), "h100=2.3", 2),
        (("--sizes", "many"), "must be a number", 2),
        (("--sizes", "8.5"), "must be a whole number, others behind commas; nearest legal value: 8", 2),
        (("--more-memory", "40GB"), "nearest legal value: 40", 2),
        (("--accelerators", "h10"), "h100", 3),
    ],
)
def test_what_is_wrong_is_said_with_what_is_near(
    cli: CommandLine, options: tuple[str, str], said: str, code: int
) -> None:
    assert said in cli.error_of("plan", *RUN, *options, code=code)


def test_a_region_says_what_its_energy_emits_and_leaves_what_hosts_draw(cli: CommandLine) -> None:
    here, there = (cli.run_json("plan", *RUN, *SMALL, *said) for said in ((), ("--tariff", "france")))
    plain, in_france = (one["answer"]["contenders"][0]["predicted"]["energy_kwh"]["median"] for one in (here, there))
    assert in_france == pytest.approx(1.2 * plain)  # the effectiveness of buildings that regions come with


def test_a_deadline_that_nothing_keeps_is_said(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--deadline", "1h")
    assert "The chance to meet the deadline of 1 h is <1 %; no cluster that was compared is likely to" in text
    assert "turns out to be the best choice" not in text  # of one cluster nobody asks
