"""Reports of this machine: every surface shows the same figures."""

from __future__ import annotations

from autotuner.core import documents
from autotuner.core.dry_run import CollectiveCount, DryRun, HeldBytes, OperationCounts, RankDryRun
from autotuner.report.machine import dry_run_report, profiles_report
from autotuner.report.words import number
from tests.builders import profile
from tests.unit.report.surfaces import surfaces


def test_a_profile_has_the_same_figures_on_every_surface() -> None:
    one = profile()
    for text in surfaces(profiles_report([one])):
        for figure in (number(one.fp32_flop_per_s, "FLOP/s"), number(one.launch_s, "s"), one.device, "Messages"):
            assert figure in text
    assert "Messages" not in surfaces(profiles_report([one], details=False))[0]
    assert "`autotuner profile` takes one" in surfaces(profiles_report([]))[0]


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


def test_every_rank_has_a_column_the_fullest_is_marked_and_what_was_left_out_is_said() -> None:
    both = DryRun(ranks=(answer(0, 20.0), answer(48, 4.0)))
    for text in surfaces(dry_run_report(both, "a job")):
        for words in ("rank 0, fullest", "rank 48", "30 GB", "5 PFLOP", "1 TB", "100,000", "1,000 x", "3 GB"):
            assert words in text
    document = documents.write(both)
    assert document["fullest_rank"] == 0
    assert document["ranks"][0]["held"]["activations_bytes"] == 20e9
    found = DryRun(
        ranks=(answer(0, 1.0),), layers_run=(4, 6), micro_batches_run=(5, 6), notes=("nothing was compiled",)
    )
    text = surfaces(dry_run_report(found, "a job"))[0]
    assert "4 and 6 layers per stage" in text
    assert "5 and 6 micro-batches" in text
    assert "Nothing was compiled." in text
