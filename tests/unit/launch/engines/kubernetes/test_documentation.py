from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import yaml

import autotuner
from autotuner.launch.engines.kubernetes.engine import JOBSET_RIGHTS, KUEUE_RIGHTS, RIGHTS
from autotuner.launch.engines.kubernetes.settings import KubernetesSettings
from autotuner.launch.engines.registration import read_engines

PAGE = (Path(autotuner.__file__).parents[1] / "docs" / "engines-kubernetes.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_role_to_copy_holds_every_right_that_the_engine_asks_for_and_no_other() -> None:
    role, _ = yaml.safe_load_all(block("yaml"))
    given = {
        (group, *f"{resource}/".split("/")[:2]): tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == RIGHTS | JOBSET_RIGHTS | KUEUE_RIGHTS


def test_the_table_to_copy_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(block("toml"))
    registered = read_engines(path)["gpus"]
    assert registered.settings.queues == ("research", "urgent")
    assert registered.own.pod["priorityClassName"] == "batch"


def test_every_setting_is_documented() -> None:
    assert [field.name for field in fields(KubernetesSettings) if f"`{field.name}`" not in PAGE] == []
