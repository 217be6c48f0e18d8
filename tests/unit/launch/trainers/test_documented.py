"""The registrations that docs/trainers.md shows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from autotuner.launch.trainers.command import on_this_machine, rendered
from autotuner.launch.trainers.registration import Registration, read_trainers
from tests.builders import cpu_layout
from tests.trials.launching import spec

PAGE = Path(__file__).parents[4] / "docs/trainers.md"


def documented(folder: Path) -> dict[str, Registration]:
    path = folder / "trainers.toml"
    path.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    return read_trainers(path)


def test_every_registration_that_is_shown_can_be_registered(tmp_path: Path) -> None:
    assert {"finetune", "titan", "titan-3"} <= documented(tmp_path).keys()


def test_torchtitan_s_module_is_imported_from_the_folder_that_it_was_written_into(tmp_path: Path) -> None:
    trial = spec("documented", layout=cpu_layout(data_parallel_replicate_degree=2))
    file = tmp_path / "a trial" / "torchtitan_layout.py"
    command = documented(tmp_path)["titan-3"].command
    vector = rendered(command, trial, on_this_machine(2), arguments=(), file=file, spec_file=file)
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(vector, env=environment, capture_output=True, text=True, timeout=10, check=True)
    assert ran.stdout.startswith(f"{file.parent} --standalone --nproc-per-node=2 -m torchtitan.train")
