from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from autotuner.cli import main
from autotuner.cli.views.dry_run import dry_run_view
from autotuner.core.dry_run import CollectiveCount, DryRun, HeldBytes, OperationCounts, RankDryRun

JOB = ["--model", "llama-3-70b", "--cluster", "h100:64", "--global-batch", "64", "--seq-len", "8192"]


def answer(rank: int, gigabytes: float) -> RankDryRun:
    held = HeldBytes(
        parameters_bytes=2e9,
        gathered_bytes=0.0,
        gradients_bytes=2e9,
        optimizer_bytes=6e9,
        activations_bytes=gigabytes * 1e9,
    )
    collectives = (CollectiveCount(kind="all_gather", num_calls=1000, num_bytes=3e9),)
    counts = OperationCounts(flop=5e15, moved_bytes=1e12, num_operations=100_000, collectives=collectives)
    return RankDryRun(rank=rank, held=held, counts=counts)


def text_of(found: DryRun) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(dry_run_view(found, title="a job"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_every_rank_has_a_column_and_the_fullest_is_marked() -> None:
    text = text_of(DryRun(ranks=(answer(0, 20.0), answer(48, 4.0))))
    assert "rank 0, fullest" in text
    assert "rank 48" in text
    assert "30 GB" in text
    assert "1,000 x, 3 GB" in text


def test_what_was_left_out_is_said() -> None:
    found = DryRun(
        ranks=(answer(0, 1.0),), layers_run=(4, 6), micro_batches_run=(5, 6), notes=("nothing was compiled",)
    )
    text = text_of(found)
    assert "4 and 6 layers per stage" in text
    assert "5 and 6 micro-batches" in text
    assert "Nothing was compiled." in text


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch", "2", "--seq-len", "32"]
    with pytest.raises(SystemExit) as ended:
        main(["dry-run", *job, "--layout", "zero2 mb1 fp32", "--json"])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fullest_rank"] == 0
    assert printed.err == ""  # progress is for terminals


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--layout", "fsdp3 tp8 pp4 mb1"], "96 ranks"),
        (["--layout", "fsdp2 tp8 pp4 mb1", "--rank", "64"], "must be below the 64 ranks"),
        (["--layout", "fsdp2 tp8 pp5x"], "is no word of a layout"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(
    more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dry-run", *JOB, *more])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
