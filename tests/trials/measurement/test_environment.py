from __future__ import annotations

import platform

import torch

from autotuner.machine import host_hash, software_facts
from trials.measurement.environment import environment, of_all_ranks
from trials.runtime.rank import host_name

CPU = torch.device("cpu")


def test_versions_device_and_backend_are_recorded() -> None:
    facts = environment(CPU, None, {})
    assert facts["torch"] == torch.__version__
    assert facts["kernel"] == platform.release()
    assert facts["backend"] == "gloo"
    assert facts["device"] == facts["cpu"]


def test_the_host_is_named_by_a_hash_alone() -> None:
    facts = environment(CPU, None, {})
    assert facts["host"] == host_hash()
    assert len(facts["host"]) == 12
    assert host_name() not in {value for name, value in facts.items() if name != "kernel"}


def test_the_service_sees_the_software_that_its_trials_record() -> None:
    facts = environment(CPU, None, {})
    assert {name: facts[name] for name in software_facts()} == software_facts()


def test_variables_of_the_libraries_are_recorded() -> None:
    assert environment(CPU, None, {"OMP_NUM_THREADS": "1", "SHELL": "sh"})["OMP_NUM_THREADS"] == "1"
    assert "SHELL" not in environment(CPU, None, {"SHELL": "sh"})


def test_of_ranks_that_agree_the_facts_are_those_of_one() -> None:
    facts = {"host": "a", "torch": "2.13"}
    assert of_all_ranks([facts, facts]) == facts


def test_the_slowest_clock_and_every_version_and_node_are_told() -> None:
    here = {"host": "a", "sm_clock_mhz": "1980", "driver": "580.82", "CUDA_VISIBLE_DEVICES": "0"}
    there = {"host": "b", "sm_clock_mhz": "990", "driver": "570.1", "CUDA_VISIBLE_DEVICES": "1"}
    assert of_all_ranks([here, here, there]) == {
        "host": "a",
        "sm_clock_mhz": "990",
        "driver": "570.1 (1 ranks), 580.82 (2 ranks)",
        "CUDA_VISIBLE_DEVICES": "0",
        "nodes": "a,b",
    }
