"""What this machine's software is, told without torch."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from subprocess import run

from autotuner.launch.software import software_of_this_machine


def test_versions_are_told_as_trials_record_them() -> None:
    facts = software_of_this_machine()
    assert facts["torch"] == version("torch")
    assert set(facts) >= {"host", "python", "kernel"}


def test_the_driver_is_the_one_whose_module_is_loaded(tmp_path: Path) -> None:
    module = tmp_path / "version"
    assert "driver" not in software_of_this_machine(module)
    module.write_text("570.133.20\n")
    assert software_of_this_machine(module)["driver"] == "570.133.20"


def test_nothing_is_imported_to_tell_it() -> None:
    code = (
        "import sys; from autotuner.launch.software import software_of_this_machine; software_of_this_machine();"
        "sys.exit('torch' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
