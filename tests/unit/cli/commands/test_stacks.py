from __future__ import annotations

from tests.unit.cli.command_line import CommandLine


def test_stacks_lists_versions_and_the_runs_that_each_was_fitted_to(cli: CommandLine) -> None:
    text = cli.run("stacks")
    assert "runs of dense models on h100-sxm, nanotron_ultrascale_sweep" in text
    assert "Megatron-Bridge" in text
    assert "compared with no measured run" in text


def test_stacks_as_json_is_the_answer_of_the_service(cli: CommandLine) -> None:
    items = cli.run_json("stacks")["items"]
    assert {"name", "framework", "versions", "date", "left_out_error", "compared"} <= set(items[0])
