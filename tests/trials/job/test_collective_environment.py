"""What a rank tells NCCL before the process group starts."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from autotuner.core import codec
from autotuner.core.choices import CollectiveAlgorithm, CollectiveProtocol
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.machine import settings_of_libraries
from tests.trials.specs import trial_spec
from trials.job.attempt import EXIT_FAILED, attempt
from trials.process.fork import fork_rank
from trials.process.task import TaskContext
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter


def test_a_rank_has_the_variables_before_its_process_group_starts_and_its_environment_tells_them(
    tmp_path: Path,
) -> None:
    asked = Layout(
        data_parallel_replicate_degree=2,
        collective_algorithm=CollectiveAlgorithm.RING,
        collective_protocol=CollectiveProtocol.LL128,
        collective_channels=16,
    )
    pid = fork_rank(partial(_fail_to_meet, asked), tmp_path, RankInfo(world_size=2, local_world_size=2), {})
    os.waitpid(pid, 0)
    told = json.loads((tmp_path / "told.json").read_text())
    assert {name: told[name] for name in collective_environment(asked)} == {
        "NCCL_ALGO": "allreduce:ring",
        "NCCL_PROTO": "ll128",
        "NCCL_MIN_NCHANNELS": "16",
        "NCCL_MAX_NCHANNELS": "16",
    }


def _fail_to_meet(layout: Layout, context: TaskContext) -> int:
    """A trial on GPUs whose process group cannot start: nobody gave it an address, and there may be no GPU."""
    spec = codec.dumps(trial_spec(layout, device="cuda"))
    code = attempt(spec, Reporter(context.folder / "reports.jsonl", rank=0), context.rank_info)
    assert code == EXIT_FAILED
    (context.folder / "told.json").write_text(json.dumps(settings_of_libraries(os.environ)))
    return 0
