from __future__ import annotations

from tests.unit.cli.command_line import JOB, CommandLine

PHASES = ("--phases", "main: 80 % | thin: 20 %; bandwidth 10gbit", "--tokens", "1T")


def test_phases_prints_the_layout_of_each_and_the_ways_through_all(cli: CommandLine) -> None:
    text = cli.run("phases", *JOB, *PHASES)
    assert [name for name in ("main", "thin", "best", "stay in") if name not in text] == []
    assert "A switch takes" in text


def test_phases_as_json_holds_the_best_course_beside_others(cli: CommandLine) -> None:
    answer = cli.run_json("phases", *JOB, *PHASES, "--restart", "100", "--storage", "10")
    assert [choice["phase"] for choice in answer["best"]["choices"]] == ["main", "thin"]
    assert answer["switch"] == {"restart_s": 100.0, "storage_bytes_per_s": 1e10}
    assert answer["best"]["total_s"] <= min(answer["greedy"]["total_s"], answer["statics"][0]["total_s"])


def test_phases_that_do_not_sum_to_the_whole_are_refused_with_what_would(cli: CommandLine) -> None:
    said = cli.error_of("phases", *JOB, "--phases", "main: 80 %", "--tokens", "1e12")
    assert "must sum to 1" in said


def test_no_phase_at_all_and_times_without_end_are_refused(cli: CommandLine) -> None:
    assert "must say one phase or more" in cli.error_of("phases", *JOB, "--phases", " ", "--tokens", "1e12")
    assert "switch.restart_s = inf: must be a finite number" in cli.error_of(
        "phases", *JOB, *PHASES, "--restart", "inf"
    )
