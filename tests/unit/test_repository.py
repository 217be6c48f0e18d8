"""Files of the repository: deployment, and no shell in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autotuner.core.errors import StoreUnavailable
from autotuner.service.settings import Settings

# ---------------------------------------------------------------- deployment
ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SETTINGS = {f"AUTOTUNER_{name.upper()}" for name in Settings.model_fields}


def documents() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def pods() -> dict[str, dict[str, Any]]:
    """What each workload says of its pods."""
    found = {}
    for document in documents():
        if "template" in document.get("spec", {}):
            found[document["metadata"]["name"]] = document["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("release", ["1.29", "1.37"])
def test_every_manifest_is_valid_for_kubernetes(release: str) -> None:
    for document in documents():
        kubernetes_validate.validate(document, release, strict=True)


def test_pods_have_no_root_no_writable_image_no_capability_and_no_token_of_the_cluster() -> None:
    assert set(pods()) == {"autotuner", "autotuner-migrate", "autotuner-worker"}
    for pod in pods().values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]


def test_traffic_is_denied_unless_a_policy_names_it_and_workers_have_accelerators() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in documents() if one["kind"] == "NetworkPolicy"}
    assert policies["nothing-by-default"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (service,), (worker,) = pods()["autotuner"]["containers"], pods()["autotuner-worker"]["containers"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(service)
    assert service["livenessProbe"]["httpGet"]["path"] == "/api/v1/health"
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert "/dev/shm" in {mount["mountPath"] for mount in worker["volumeMounts"]}


def test_secrets_come_from_files_and_none_is_written_down() -> None:
    for document in documents():
        assert document["kind"] != "Secret"
    for pod in pods().values():
        assert "autotuner" in {volume.get("secret", {}).get("secretName") for volume in pod["volumes"]}
    assert {name: list(one) for name, one in COMPOSE["secrets"].items()} == {
        name: ["file"] for name in ("postgres_password", "database_url", "admin_token")
    }
    assert "PASSWORD:" not in (ROOT / "docker-compose.yml").read_text()
    for ignored in (".gitignore", ".dockerignore"):
        assert re.search(r"^secrets/?$", (ROOT / ignored).read_text(), re.MULTILINE)


def test_every_setting_that_they_name_exists() -> None:
    named = {variable["name"] for pod in pods().values() for one in pod["containers"] for variable in one["env"]}
    for service in COMPOSE["services"].values():
        named |= {name for name in service.get("environment", {}) if name.startswith("AUTOTUNER_")}
    named |= set(re.findall(r"\b(AUTOTUNER_[A-Z_]+)=", (ROOT / "Dockerfile").read_text()))
    assert sorted(named - SETTINGS) == []


def test_containers_of_the_compose_file_have_no_root_no_writable_image_and_no_capability() -> None:
    assert COMPOSE["services"]["postgres"]["user"] == "postgres"
    assert re.search(r"^USER \d+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_compose_file_publishes_the_service_to_its_own_machine_alone() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8000:8000"]
    assert COMPOSE["services"]["postgres"]["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"]["internal"] is True


def test_whatever_stays_is_asked_for_its_health() -> None:
    staying = {name for name, service in COMPOSE["services"].items() if "restart" in service}
    assert staying == {name for name, service in COMPOSE["services"].items() if "healthcheck" in service}
    assert staying == {"postgres", "api", "worker"}


# ---------------------------------------------------------------------- the database's URL as a secret
def test_the_url_of_the_database_is_read_from_a_file_that_is_named_where_it_has_none(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://autotuner:pass@postgres/autotuner\n")
    settings = Settings(database_url_file=tmp_path / "url", database_url="sqlite:///other.db")
    assert settings.database_url == "postgresql://autotuner:pass@postgres/autotuner"
    with pytest.raises(StoreUnavailable, match="gone, which cannot be read"):
        Settings(database_url_file=tmp_path / "gone")


# ---------------------------------------------------------------- no shell
PRODUCT = sorted(
    path
    for room in ("autotuner", "api", "trials", "migrations", "examples")
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)

SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
"""Functions of ``os``, ``subprocess`` and ``asyncio`` that hand a text to a shell."""

READERS = {"eval", "exec"}
"""Functions that run a text as Python."""


def dangers(source: str) -> list[str]:
    """Calls that give a text to a shell or to Python."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [f"line {call.lineno}: {ast.unparse(call.func)}" for call in calls if _is_danger(call)]


def _is_danger(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="os" | "subprocess" | "asyncio"), attr=function) if function in SHELLS:
            return True
        case ast.Name(id=function) if function in READERS:
            return True
    return any(word.arg == "shell" for word in call.keywords)


def test_nothing_is_handed_to_a_shell_or_run_as_code() -> None:
    assert len(PRODUCT) > 500
    assert {path: found for path in PRODUCT if (found := dangers(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        *("os.system('ls')", "subprocess.run('ls', shell=True)", "eval('1')"),
        *("asyncio.create_subprocess_shell('ls')", "subprocess.getoutput('ls')", "os.popen('ls')"),
    ],
)
def test_calls_that_run_text_as_code_are_found(source: str) -> None:
    assert dangers(source)


# ---------------------------------------------------------------- plain English
_BARE = r"What|Who|Whose|Whom|Which|Whether|Where|Of|The same|Likewise"
HEADING = re.compile(rf"#+ ({_BARE})\b(?!.*\?$)")
DOCSTRING = re.compile(
    rf"({_BARE}|When|How|Why|From|As|At|By|For|In|On|To|With|Without|Beside|Before|After|The other|Also|Yes|No|All of"
    r"|Both|Each of|Another|Nothing|None)\b(?!.*\?$)"
)
"""Openings that say nothing to a newcomer, unless they ask a question."""

DIALECT = re.compile(
    r"\b(ails?|befalls?|befell|kinship|sittings?|stand-ins?|loss gates?|MFU gates?|healthy links?|met traffic|thinning"
    r"|keepers?|shelf|chang\w+ the mathematics)\b",
    re.IGNORECASE,
)
"""Words of our own for things that have a name: degraded link, session, proxy trial, convergence gate, retention."""

ALLOWED = {"README.md: ## What you can do": "newcomers look for these words"}
"""Lines that stay as they are, each with the reason."""


def prose() -> Iterator[tuple[Path, str, re.Pattern[str]]]:
    """Yield lines of pages written by hand, without code, and first lines of docstrings, with their bad openings."""
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if "reference" not in page.parts:
            text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            yield from ((page, line, HEADING) for line in text.splitlines())
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                    yield path, text.strip().splitlines()[0], DOCSTRING


def test_pages_and_docstrings_are_in_plain_english() -> None:
    places = (
        f"{path.relative_to(ROOT)}: {line}"
        for path, line, opening in prose()
        if DIALECT.search(line) or opening.match(line)
    )
    assert sorted(set(places) - set(ALLOWED)) == []
