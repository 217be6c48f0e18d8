from __future__ import annotations

import torch

from autotuner.launch.detect import host_hash
from trials.measurement.environment import environment, hashed, settings_of_libraries
from trials.runtime.rank import host_name

CPU = torch.device("cpu")


def test_versions_device_and_backend_are_recorded() -> None:
    facts = environment(CPU, None, {})
    assert facts["torch"] == torch.__version__
    assert facts["backend"] == "gloo"
    assert facts["device"] == facts["cpu"]


def test_the_host_is_named_by_a_hash_alone() -> None:
    facts = environment(CPU, None, {})
    assert facts["host"] == hashed(host_name())
    assert len(facts["host"]) == 12
    assert host_name() not in {value for name, value in facts.items() if name != "kernel"}
    assert hashed("a") != hashed("b")


def test_the_launcher_knows_its_host_by_the_hash_that_its_trials_report() -> None:
    assert host_hash() == environment(CPU, None, {})["host"]


def test_variables_of_the_libraries_are_recorded_but_no_places_on_the_disk() -> None:
    variables = {
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": "somewhere",
        "CUDA_HOME": "somewhere",
        "PATH": "somewhere",
        "SECRET": "x",
    }
    assert settings_of_libraries(variables) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1"}
