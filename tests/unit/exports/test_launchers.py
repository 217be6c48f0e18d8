"""Scripts that start a user's trainer: what they start, and what they are read back as."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.exports.formats import export, read
from autotuner.exports.shared.target import Export
from tests.builders import cpu_cluster, cpu_layout, h100_cluster, tiny_job
from tests.cases import each
from tests.unit.exports.sayable import JOB

SHARDED = Layout(data_parallel_shard_degree=16, micro_batch_size=1)
TRAINERS = tuple(one for one in ExportFormat if one.is_of_a_trainer)
BIN = Path(sys.executable).parent


def job(num_nodes: int = 2) -> Job:
    cluster = h100_cluster(num_nodes=num_nodes, accelerators_per_node=16 // num_nodes)
    return Job(model=JOB.model, cluster=cluster, workload=Workload(seq_len=2048, global_batch_size=64))


def launch(name: ExportFormat, launcher: ExportLauncher, num_nodes: int = 2) -> Export:
    return export(job(num_nodes), SHARDED, name, launcher)


def saved(found: Export, folder: Path) -> Path:
    for file in found.files:
        (folder / file.name).write_text(file.text)
    return folder


@each("name", TRAINERS)
@each("launcher", ExportLauncher)
def test_every_script_is_sound_shell(name: ExportFormat, launcher: ExportLauncher, tmp_path: Path) -> None:
    found = launch(name, launcher)
    assert (found.arguments, dict(found.environment)) == ((), {})
    for number, objects in enumerate(yaml.safe_load_all(found.files[-1].text) if launcher == "kubernetes" else ()):
        for file, text in objects.get("data", {}).items():
            (tmp_path / f"{number}-{file}").write_text(text)
    saved(found, tmp_path)
    scripts = [path for path in tmp_path.iterdir() if path.suffix in (".sh", ".sbatch")]
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        subprocess.run([BIN / "shellcheck", "--shell=bash", script], check=True)


@each("name", [ExportFormat.MEGATRON_LM, ExportFormat.ARGUMENTS])
def test_a_script_is_read_back_as_its_layout(name: ExportFormat) -> None:
    (script,) = launch(name, ExportLauncher.TORCHRUN).files
    assert read(script.text).layout == read(export(job(), SHARDED, name).text, name, 16).layout


def test_torchrun_gives_the_users_script_the_layouts_arguments_and_then_the_users(tmp_path: Path) -> None:
    two = tiny_job(cluster=cpu_cluster(2))
    found = export(two, cpu_layout(data_parallel_replicate_degree=2), ExportFormat.ARGUMENTS, ExportLauncher.TORCHRUN)
    saved(found, tmp_path)
    (tmp_path / "mine.py").write_text(
        "import json, os, sys\n"
        "open(f'{os.environ[\"RANK\"]}.json', 'w').write(json.dumps([os.environ['WORLD_SIZE'], sys.argv[1:]]))\n"
    )
    variables = {"PATH": f"{BIN}:/usr/bin:/bin", "TRAIN_SCRIPT": "mine.py"}
    subprocess.run(["bash", "launch.sh", "--data", "my own"], cwd=tmp_path, env=variables, check=True, timeout=100)
    for rank in range(2):
        world_size, arguments = json.loads((tmp_path / f"{rank}.json").read_text())
        assert world_size == "2"
        assert arguments[:2] == ["--seq-len", str(two.workload.seq_len)]
        assert arguments[-2:] == ["--data", "my own"]


def test_files_of_the_export_are_found_from_any_folder() -> None:
    (*_, script) = launch(ExportFormat.DEEPSPEED, ExportLauncher.TORCHRUN, num_nodes=1).files
    assert '--deepspeed_config "$here"/ds_config.json' in script.text
    (*_, script) = launch(ExportFormat.TORCHTITAN_CONFIG, ExportLauncher.TORCHRUN, num_nodes=1).files
    assert 'export PYTHONPATH="$here' in script.text


@each("name", TRAINERS)
def test_a_kubernetes_job_is_valid_and_has_a_pod_for_each_node(name: ExportFormat) -> None:
    (file,) = launch(name, ExportLauncher.KUBERNETES).files
    objects = list(yaml.safe_load_all(file.text))
    for one in objects:
        kubernetes_validate.validate(one, "1.29", strict=True)
    files, _, job_ = objects
    assert "launch.sh" in files["data"]
    assert (job_["spec"]["completions"], job_["spec"]["parallelism"]) == (2, 2)
    (container,) = job_["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}


def test_a_format_of_our_own_trial_starts_no_trainer() -> None:
    with pytest.raises(InvalidInput, match="starts a trial of this product"):
        export(tiny_job(), cpu_layout(data_parallel_replicate_degree=2), ExportFormat.SBATCH, ExportLauncher.SBATCH)
