from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.slurm.settings import SlurmSettings


def test_a_shared_folder_is_enough() -> None:
    assert SlurmSettings(shared="/shared").python == "python3"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"shared": "relative"}, "shared"),
        ({"shared": "/sha%red"}, "shared"),
        ({"sbatch_lines": ("#SBATCH --exclusive",)}, "sbatch_lines.0"),
        ({"sbatch_lines": ("--mem=0", "--comment=a\nrm -rf /")}, "sbatch_lines.1"),
        ({"srun_arguments": ("bash",)}, "srun_arguments.0"),
        ({"container_mounts": ("/data:/data",)}, "container_mounts"),
        ({"cpus_per_accelerator": -1}, "cpus_per_accelerator"),
        ({"command_timeout_s": 0.0}, "command_timeout_s"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        SlurmSettings(**{"shared": "/shared"} | said)
    assert raised.value.field == field


def test_the_nearest_option_is_named() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: --exclusive"):
        SlurmSettings(shared="/shared", sbatch_lines=("#SBATCH --exclusive",))


def test_every_setting_is_on_the_page_of_slurm() -> None:
    page = (Path(__file__).parents[5] / "docs/engines-slurm.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {one.name for one in fields(SlurmSettings)} <= set(re.findall(r"`(\w+)`", " ".join(rows)))
