from __future__ import annotations

from tests.unit.cli.command_line import CommandLine


def test_the_catalog_lists_accelerators_and_models(cli: CommandLine) -> None:
    text = cli.run("catalog")
    assert "h100-sxm" in text
    assert "deepseek-v3" in text
    assert "megatron" in text


def test_the_catalog_as_json_holds_each_list_as_the_service_answers_it(cli: CommandLine) -> None:
    answer = cli.run_json("catalog")
    assert {kind: "items" in answer[kind] for kind in answer} == {"accelerators": True, "models": True, "stacks": True}
