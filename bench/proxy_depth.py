"""How far a trial at proxy depth is from the trial of the whole model.

``python -m bench.proxy_depth [REPETITIONS]`` runs real trials of an eight-layer model on this machine's cores, whole
and at two smaller depths in turn, and prints for each layout the error of the extrapolated step time and peak memory
beside the noise floor: how far equal trials of the whole model lie apart.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotuner.core.choices import AttentionKernel, Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.launch.exclusive import DevicePool, ExclusiveLauncher
from autotuner.launch.local import LocalLauncher
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.launch.zygote import Forks
from bench.patient import Patient

_REPETITIONS = 3

_PLAIN = Layout(micro_batch_size=4, precision=Precision.FP32, attention_kernel=AttentionKernel.MATH)

LAYOUTS: dict[Layout, tuple[int, int]] = {
    _PLAIN: (2, 4),
    replace(_PLAIN, recompute=Recompute.FULL): (2, 4),
    replace(_PLAIN, data_parallel_replicate_degree=2): (2, 4),
    replace(_PLAIN, data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS): (2, 4),
    replace(_PLAIN, tensor_parallel_degree=2, sequence_parallel=True): (2, 4),
    replace(_PLAIN, pipeline_parallel_degree=2, micro_batch_size=2): (1, 2),
    replace(_PLAIN, pipeline_parallel_degree=2, micro_batch_size=2, last_stage_less_layers=2): (3, 4),
}
"""Layouts of one or two ranks, and the layers per stage of their proxies."""


def trial(layout: Layout, layers_per_stage: tuple[int, ...]) -> TrialSpec:
    """Eight layers, or the proxies of them; undisturbed as far as the machine allows."""
    return TrialSpec(
        trial_id="depth",
        model=TransformerSpec(
            name="eight-layers",
            num_layers=8,
            hidden_size=256,
            num_heads=8,
            num_kv_heads=4,
            head_dim=32,
            ffn_size=704,
            vocab_size=1024,
        ),
        workload=Workload(seq_len=128, global_batch_size=8),
        layout=layout,
        device="cpu",
        settings=TrialSettings(proxy_layers_per_stage=layers_per_stage, profiled_steps=0, max_repeats=0),
        reference_flop_per_s=100e9,
    )


def main() -> None:
    """Print a line per layout and the largest error."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else _REPETITIONS
    forks = Forks()
    errors = []
    with tempfile.TemporaryDirectory() as directory:
        devices = DevicePool.of_this_machine()
        launcher = ExclusiveLauncher(RepeatingLauncher(LocalLauncher(Path(directory), forks, devices)), devices)
        for layout, layers_per_stage in LAYOUTS.items():
            pairs = [
                [_measured(launcher, trial(layout, layers)) for layers in ((), layers_per_stage)]
                for _ in range(repetitions)
            ]
            whole, proxy = (list(runs) for runs in zip(*pairs, strict=True))
            errors.append(_median_s(proxy) / _median_s(whole) - 1.0)
            _print(_line(layout, whole, proxy))
    forks.close()
    _print(
        f"largest error of a step time: {max(map(abs, errors)):.1%}; median: {statistics.median(map(abs, errors)):.1%}"
    )


def _measured(launcher: ExclusiveLauncher, spec: TrialSpec) -> Measurement:
    outcome = launcher.run(spec, Patient())
    if not isinstance(outcome, Measurement):
        raise RuntimeError(str(outcome))
    return outcome


def _median_s(runs: Sequence[Measurement]) -> float:
    return statistics.median(run.step_time_s for run in runs)


def _line(layout: Layout, whole: Sequence[Measurement], proxy: Sequence[Measurement]) -> str:
    times_s = [run.step_time_s for run in whole]
    floor = (max(times_s) - min(times_s)) / _median_s(whole)
    bytes_error = max(proxy[0].peak_bytes) / max(whole[0].peak_bytes) - 1.0
    depths = " and ".join(map(str, proxy[0].extrapolated_from))
    return (
        f"{layout!s:44s} {depths:>8s} layers: step {_median_s(proxy) / _median_s(whole) - 1.0:+6.1%}"
        f" (noise floor {floor:5.1%}), memory {bytes_error:+5.1%}"
    )


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
