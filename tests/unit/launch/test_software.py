"""What this machine's software is, told without torch."""

from __future__ import annotations

import sys
from importlib.metadata import version
from subprocess import run

from autotuner.launch.software import software_of_this_machine


def test_versions_are_told_as_trials_record_them() -> None:
    facts = software_of_this_machine()
    assert facts["torch"] == version("torch")
    assert set(facts) >= {"host", "python", "kernel"}


def test_nothing_is_imported_to_tell_it() -> None:
    code = (
        "import sys; from autotuner.launch.software import software_of_this_machine; software_of_this_machine();"
        "sys.exit('torch' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
