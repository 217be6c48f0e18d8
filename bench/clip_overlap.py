"""Step times by where gradients are clipped, over a shaped link: ``python -m bench.clip_overlap``.

Two replicas of our own trial job on gloo, each on a node of its own, joined by a link that takes about as long as a
backward pass (``bench.two_nodes``; needs root). Ways to clip take turns, so that what else the machine does befalls
all of them; the best turn of each counts, with the share of the bytes whose reduction started under the backward pass.
The bound holds what does not depend on the machine: half of the bytes start early with post and bucket, none with pre.
Times are printed, and nobody's bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.choices import AttentionKernel, GradientClip, Precision
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.details import overlapped_share
from autotuner.launch.this_machine import detect_cluster
from bench.forked_ranks import on_ranks
from bench.two_nodes import TwoNodes
from trials.job.attempt import attempt
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter

_MODEL = TransformerSpec(
    name="4M", num_layers=6, hidden_size=256, num_heads=4, num_kv_heads=4, head_dim=64, ffn_size=640, vocab_size=256
)
_WORKLOAD = Workload(seq_len=128, global_batch_size=16)
_LAYOUT = Layout(
    data_parallel_replicate_degree=2,
    micro_batch_size=8,
    precision=Precision.FP32,
    attention_kernel=AttentionKernel.MATH,
    gradient_bucket_bytes=2**21,
)
_SETTINGS = TrialSettings(max_gradient_norm=1.0, timeout_s=600.0)


def measured(clip: GradientClip, bits_per_s: float, num_steps: int) -> Measurement:
    """A trial that clips there, over a link of that speed."""
    spec = TrialSpec(
        trial_id="clip",
        model=_MODEL,
        workload=_WORKLOAD,
        layout=replace(_LAYOUT, gradient_clip=clip),
        device="cpu",
        settings=_SETTINGS.just_steps(num_steps),
        reference_flop_per_s=1e11,
    )
    with TwoNodes(bits_per_s) as nodes:
        (measurement, *_) = on_ranks(2, partial(_of_rank, spec, nodes))
        assert measurement is not None
        return measurement


def _of_rank(spec: TrialSpec, nodes: TwoNodes, rank: int, folder: Path) -> Measurement | None:
    nodes.enter(rank)
    reports = folder / "reports.jsonl"
    info = RankInfo(rank=rank, world_size=2, local_rank=rank, local_world_size=2)
    store = FileStore(str(folder / "store"), 2)
    if attempt(codec.dumps(spec), Reporter(reports, rank=rank), info, store=store) != 0:
        raise RuntimeError(reports.read_text())
    return _measurement(reports) if rank == 0 else None


def _measurement(reports: Path) -> Measurement:
    for line in reports.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        if found.pop("type") == "measurement":
            return codec.from_plain(Measurement, found)
    raise RuntimeError("the trial measured nothing")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each way to clip; 1 where too little or too much starts early."""
    parser = argparse.ArgumentParser(prog="python -m bench.clip_overlap", description=__doc__)
    parser.add_argument("--mbit-per-s", type=float, default=400.0)
    parser.add_argument("--steps", type=int, default=8, help="of a turn, whose median counts")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args(arguments)
    found: dict[GradientClip, list[Measurement]] = {clip: [] for clip in GradientClip}
    for _ in range(given.turns):
        for clip, turns in found.items():
            turns.append(measured(clip, given.mbit_per_s * 1e6, given.steps))
    job = Job(model=_MODEL, workload=_WORKLOAD, cluster=replace(detect_cluster(), accelerators_per_node=2))
    holds = True
    for clip, turns in found.items():
        times_ms = [1e3 * turn.step_time_s for turn in turns]
        share, predicted = turns[-1].overlapped_share, overlapped_share(replace(_LAYOUT, gradient_clip=clip), job)
        assert share is not None
        holds &= share == 0.0 if clip == GradientClip.PRE else share >= 0.5
        sys.stdout.write(
            f"{clip.label:7} best {min(times_ms):6.0f} ms  median {median(times_ms):6.0f} ms  of {given.turns} turns;  "
            f"{share:4.0%} of the bytes start early, {predicted:4.0%} predicted\n"
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
