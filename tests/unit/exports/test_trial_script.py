"""Scripts that start our own trial: what they write, what they start, and what they are read back as."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core import codec
from autotuner.core.choices import ExportFormat, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.trial_spec import TrialSpec
from autotuner.exports.formats import export, read, refusals, target_of
from autotuner.exports.own_formats import SBATCH, TORCHRUN, trial_spec
from tests.builders import big_job, cpu_layout, h100_cluster, tiny_job, tiny_model
from tests.properties.strategies import jobs, layouts

FSDP = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, micro_batch_size=2)
SCRIPTS = pytest.mark.parametrize("name", ["torchrun", "sbatch"])
PRINTS = '#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n'


def script_of(name: str, job: Job | None = None, layout: Layout = FSDP) -> str:
    (file,) = export(job or tiny_job(), layout, name).files
    return file.text


def program(folder: Path, name: str, text: str = PRINTS) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def run(script: str, folder: Path, **variables: str) -> list[str]:
    """The lines that a script prints, run in a folder."""
    (folder / "script").write_text(script)
    path = f"{folder}:{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "script"],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@SCRIPTS
@given(layout=layouts, job=jobs)
def test_a_script_is_read_back_as_layout_model_and_batch_it_was_made_of(name: str, layout: Layout, job: Job) -> None:
    (file,) = target_of(name).write(job, layout).files  # whether or not a trial of it would run
    back = read(file.text)
    assert (back.format, back.layout, back.model) == (name, layout, job.model)
    assert (back.seq_len, back.global_batch_size) == (job.workload.seq_len, job.workload.global_batch_size)
    assert back.num_ranks == layout.world_size


@SCRIPTS
def test_bash_finds_nothing_wrong_with_a_script_and_no_model_s_name_leaves_its_quotes(name: str) -> None:
    job = tiny_job(model=tiny_model(name="$(touch x)\nSPEC\n'\"`touch x`"))
    for script in (script_of(name, job), script_of(name, replace(job, cluster=h100_cluster(4)))):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=10)
        assert read(script).model == job.model


def test_a_script_for_torchrun_writes_the_spec_and_starts_a_rank_per_core(tmp_path: Path) -> None:
    lines = run(script_of("torchrun"), tmp_path, PYTHON=program(tmp_path, "python"))
    assert lines[:3] == ["-m", "torch.distributed.run", "--standalone"]
    assert lines[lines.index("--nproc-per-node") + 1] == "2"
    assert lines[-6:] == ["-m", "autotuner.trials", "--spec", "trial/spec.json", "--reports", "trial/reports.jsonl"]
    assert codec.loads(TrialSpec, (tmp_path / "trial/spec.json").read_text()) == trial_spec(tiny_job(), FSDP)


def test_a_script_for_several_nodes_meets_at_the_first_and_says_so_where_nobody_named_it(tmp_path: Path) -> None:
    job = replace(tiny_job(), cluster=h100_cluster(2))
    script, python = script_of("torchrun", job, replace(FSDP, data_parallel_shard_degree=16)), program(tmp_path, "py")
    lines = run(script, tmp_path, PYTHON=python, HEAD_NODE="node-1")
    assert [lines[lines.index(flag) + 1] for flag in ("--nnodes", "--nproc-per-node")] == ["2", "8"]
    assert lines[lines.index("--rdzv-endpoint") + 1] == "node-1:29500"
    with pytest.raises(AssertionError, match="names the first node"):
        run(script, tmp_path, PYTHON=python)


def test_a_script_for_slurm_asks_for_the_cluster_and_starts_an_agent_on_each_node(tmp_path: Path) -> None:
    script = script_of("sbatch", replace(tiny_job(), cluster=h100_cluster(2)), replace(FSDP, tensor_parallel_degree=8))
    asked = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8", "--exclusive"} <= set(asked)
    program(tmp_path, "srun")
    program(tmp_path, "scontrol", "#!/usr/bin/env bash\nprintf 'node-7\\nnode-8\\n'\n")
    slurm = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node-[7-8]", "SLURM_CPUS_ON_NODE": "96"}
    lines = run(script, tmp_path, PYTHON="python3", **slurm)
    assert lines[:5] == ["--cpu-bind=none", "--cpus-per-task=96", "python3", "-m", "torch.distributed.run"]
    assert lines[lines.index("--rdzv-endpoint") + 1] == "node-7:29500"
    assert (tmp_path / "autotuner-trial-41/spec.json").exists()


@SCRIPTS
def test_no_script_is_written_for_a_layout_that_the_trial_it_starts_would_refuse(name: str) -> None:
    layout = replace(FSDP, data_parallel_shard_degree=1)
    with pytest.raises(InvalidInput, match="nearest legal value") as refused:
        export(tiny_job(), layout, name)
    (reason,) = refusals(tiny_job(), layout, ExportFormat(name))
    assert (reason.rule, reason.path) == ("trial-shards-over-data-ranks", refused.value.field)
    assert refusals(tiny_job(), layout, ExportFormat.MEGATRON_LM) == ()
    assert SBATCH.rules == TORCHRUN.rules == TRIAL_RULES


def test_a_trial_runs_on_the_device_and_the_number_of_ranks_of_its_script() -> None:
    on_gpus, on_cores = trial_spec(big_job(), Layout()), trial_spec(tiny_job(), FSDP)
    assert (on_gpus.device, on_gpus.reference_flop_per_s, on_gpus.memory_bytes) == ("cuda", 989.4e12, 80 * 10**9)
    assert (on_cores.device, on_cores.reference_flop_per_s, on_cores.memory_bytes) == ("cpu", None, None)
    with pytest.raises(InvalidInput, match="must be 2, the ranks of the layout in the script; nearest legal value: 2"):
        read(script_of("torchrun"), num_ranks=4)


@given(st.text(), st.sampled_from([ExportFormat.TORCHRUN, ExportFormat.SBATCH]))
def test_any_text_around_or_inside_the_spec_is_read_or_refused(text: str, name: ExportFormat) -> None:
    for config in (text, f"<<'SPEC'\n{{\n{text}\n}}\nSPEC"):
        with pytest.raises(InvalidInput):
            read(config, name)
