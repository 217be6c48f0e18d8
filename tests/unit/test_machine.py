from __future__ import annotations

import hashlib
import os
import platform
import socket
from importlib import metadata
from pathlib import Path

import pytest

from autotuner.machine import (
    driver_version,
    hardware_facts,
    host_hash,
    is_this_host,
    settings_of_libraries,
    software_facts,
    system_facts,
)


def test_versions_are_those_that_are_installed() -> None:
    facts = software_facts()
    assert facts["python"] == platform.python_version()
    assert facts["torch"] == metadata.version("torch")
    assert facts["kernel"] == os.uname().release


def test_what_holds_for_any_python_is_told_without_this_one() -> None:
    assert system_facts().keys() < software_facts().keys()
    assert not system_facts().keys() & {"python", "torch"}


def test_an_operator_says_which_image_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_CONTAINER_IMAGE", "registry/train:2026-11")
    assert system_facts()["container_image"] == "registry/train:2026-11"


def test_an_image_of_apptainer_is_told_without_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNER_CONTAINER_IMAGE", raising=False)
    monkeypatch.setenv("APPTAINER_CONTAINER", "/home/somebody/train.sif")
    assert system_facts()["container_image"] == "train.sif"


def test_facts_that_a_machine_does_not_tell_are_left_out() -> None:
    assert "" not in {**software_facts(), **hardware_facts()}.values()


def test_the_machine_is_named_by_a_hash() -> None:
    assert hardware_facts()["host"] == host_hash()
    assert socket.gethostname() not in hardware_facts().values()


def test_a_list_of_names_does_not_tell_which_machine_a_hash_is_of() -> None:
    unsalted = hashlib.sha256(socket.gethostname().encode()).hexdigest()
    assert host_hash() != unsalted[:12]
    assert is_this_host(host_hash())
    assert is_this_host(unsalted[:12])  # what earlier releases stored
    assert not is_this_host(hashlib.sha256(b"another").hexdigest()[:12])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_MY_NOTES", "hunter2"),
        ("TORCH_WANDB", "hunter2"),
        ("TORCHINDUCTOR_CACHE_DIR", "somewhere"),
        ("CUDA_HOME", "somewhere"),
        ("PATH", "somewhere"),
        ("SECRET", "x"),
        ("TORCH_HUB_TOKEN", "x"),
        ("NCCL_COMM_ID", "10.0.0.1:5000"),
        ("UCX_LOG_LEVEL", "http://user:password@host"),
    ],
)
def test_what_is_not_on_the_list_is_not_recorded_and_no_url(name: str, value: str) -> None:
    assert settings_of_libraries({name: value, "NCCL_DEBUG": "INFO"}) == {"NCCL_DEBUG": "INFO"}


def test_an_operator_names_what_else_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_ALSO_RECORDED", "PACE,TURN")
    assert settings_of_libraries({"PACE": "2", "TOKEN": "x"}) == {"PACE": "2"}


def test_a_long_value_is_cut() -> None:
    assert settings_of_libraries({"NCCL_DEBUG": "x" * 1000}) == {"NCCL_DEBUG": "x" * 200}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sys/module/nvidia/version", "570.133.20\n"),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder)\n",
        ),
    ],
)
def test_the_driver_is_the_one_whose_module_is_loaded(file: str, text: str, tmp_path: Path) -> None:
    assert driver_version(tmp_path) == ""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert driver_version(tmp_path) == "570.133.20"
