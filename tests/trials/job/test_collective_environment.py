"""What a rank tells NCCL before the process group starts."""

from __future__ import annotations

import os

import pytest

from autotuner.domain.choice import CollectiveAlgorithm, CollectiveProtocol
from autotuner.domain.layout import Layout
from trials.job.attempt import collective_environment
from trials.measurement.environment import settings_of_libraries


def test_what_is_left_to_nccl_sets_nothing() -> None:
    assert collective_environment(Layout()) == {}


@pytest.mark.parametrize("algorithm", [way for way in CollectiveAlgorithm if way != CollectiveAlgorithm.AUTO])
def test_an_algorithm_is_asked_of_all_reduces_alone(algorithm: CollectiveAlgorithm) -> None:
    asked = collective_environment(Layout(collective_algorithm=algorithm))["NCCL_ALGO"]
    assert asked.startswith(f"allreduce:{algorithm.label}")
    assert ";" not in asked


def test_a_rank_has_the_variables_and_its_measurement_tells_them() -> None:
    layout = Layout(
        collective_algorithm=CollectiveAlgorithm.RING,
        collective_protocol=CollectiveProtocol.LL128,
        collective_channels=16,
    )
    asked = collective_environment(layout)
    assert asked == {
        "NCCL_ALGO": "allreduce:ring",
        "NCCL_PROTO": "ll128",
        "NCCL_MIN_NCHANNELS": "16",
        "NCCL_MAX_NCHANNELS": "16",
    }
    read_end, write_end = os.pipe()
    if (pid := os.fork()) == 0:
        os.environ.update(asked)  # as attempt does, in a process of its own
        told = settings_of_libraries(os.environ)
        os.write(write_end, " ".join(f"{name}={told[name]}" for name in sorted(asked)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(read_end, 1000).decode()
    assert said == " ".join(f"{name}={value}" for name, value in sorted(asked.items()))
