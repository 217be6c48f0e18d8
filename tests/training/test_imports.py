from __future__ import annotations

import pkgutil
import subprocess
import sys

from autotuner import training


def loaded(*modules: str) -> set[str]:
    """Modules that a fresh process has after importing these."""
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_a_trainer_gets_torch_the_core_and_schedules_and_nothing_else_of_the_product() -> None:
    building_blocks = [found.name for found in pkgutil.walk_packages(training.__path__, "autotuner.training.")]
    assert len(building_blocks) > 15
    found = loaded(*building_blocks)
    own = {name.split(".")[1] for name in found if name.startswith("autotuner.")}
    assert own == {"core", "schedules", "training"}
    assert not {"pydantic", "fastapi", "sqlalchemy", "trials", "api"} & found


def test_the_package_alone_loads_no_building_block() -> None:
    assert not {name for name in loaded("autotuner.training") if name.startswith(("torch", "autotuner.training."))}
