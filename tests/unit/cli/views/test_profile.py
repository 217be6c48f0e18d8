"""What ``autotuner profile`` prints."""

from __future__ import annotations

from dataclasses import replace

from autotuner.cli.views.profile import profile_view
from autotuner.domain.jobs.core_times import CoreTimes, PassTimes, SplitTimes
from tests.builders import profile
from tests.unit.cli.views.printed import printed

TIMES = PassTimes(forward_s=1e-3, backward_s=2e-3)


def test_a_core_shows_what_it_does_beside_the_work() -> None:
    split = SplitTimes(num_ranks=2, sequence_parallel=True, layer=TIMES, ends=TIMES)
    core = CoreTimes(
        layer=TIMES,
        ends=TIMES,
        selective=TIMES,
        full=TIMES,
        sharded=None,
        split=(split,),
        pointwise_bytes_per_s=1e9,
    )
    text = printed(profile_view([replace(profile(), core=core)]), 100)
    assert "both ends of the model" in text
    assert "layer on 2 tensor ranks with sequence parallelism" in text


def test_a_gpu_shows_its_products_and_messages_alone() -> None:
    text = printed(profile_view([profile()]), 100)
    assert "both ends of the model" not in text
    assert "all-gather" in text
