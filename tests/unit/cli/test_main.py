from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from autotuner.cli.main import app
from tests.unit.cli.command_line import JOB, CommandLine


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (["--model", "llama-3-70x"], 3, "did you mean 'llama-3-70b'"),
        (["--cluster", "h100:63"], 2, "nearest legal value"),
        (["--global-batch", "0"], 2, "global_batch_size"),
        (["--space", "{"], 2, "must be JSON"),
        (["--space", '{"recompte": ["none"]}'], 2, "recompute"),
        (["--model", "missing.json"], 2, "cannot be read"),
        (["--server", "http://127.0.0.1:9"], 5, "autotuner serve"),
        (["--limit", "0"], 2, "limit"),
        (["--stack", "megatrn"], 3, "did you mean 'megatron'"),
    ],
)
def test_wrong_input_ends_with_its_exit_code_and_says_what_is_right(
    cli: CommandLine, change: list[str], code: int, said: str
) -> None:
    cli.run("predict", *JOB, *change, code=code)
    assert said in " ".join(cli.error.split())


def test_every_command_says_what_it_does(cli: CommandLine) -> None:
    text = cli.run("--help")
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__
        assert (command.name or command.callback.__name__) in text


def imported_by(*arguments: str) -> set[str]:
    """The packages that a fresh interpreter has imported when the command is done."""
    script = "import atexit, sys; from autotuner.cli import main; atexit.register(lambda: print(*sys.modules)); main()"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_neither_the_service_nor_the_sampler_nor_the_store() -> None:
    heavy = {"alembic", "fastapi", "httpx", "numpy", "optuna", "psutil", "sqlalchemy", "uvicorn"}
    assert imported_by("--help") & heavy == set()
    assert imported_by("predict", "--help") & heavy == set()


def test_the_version_is_printed_alone(cli: CommandLine) -> None:
    assert cli.run("--version") == f"autotuner {version('parallelism-autotuner')}\n"


def test_the_version_imports_neither_the_service_nor_the_store_nor_torch() -> None:
    assert imported_by("--version") & {"alembic", "fastapi", "numpy", "sqlalchemy", "torch", "uvicorn"} == set()


def test_a_call_without_a_command_prints_the_help(cli: CommandLine) -> None:
    assert "Find the parallel layout that trains a transformer fastest." in cli.run(code=2)


def test_names_of_the_catalog_are_read_in_any_case_and_printed_in_lower_case(cli: CommandLine) -> None:
    job = ["--global-batch", "64", "--seq-len", "8k", "--layout", "FSDP8 mb1 recompute-full"]
    told = cli.run("predict", "--model", "Llama-3-8B", "--cluster", "H100:8", "--stack", "Torch", *job)
    assert told == cli.run("predict", "--model", "llama-3-8b", "--cluster", "h100:8", "--stack", "torch", *job)


def test_a_prediction_imports_no_server_no_sampler_no_database_and_nothing_of_trials() -> None:
    heavy = {"alembic", "fastapi", "httpx", "optuna", "sqlalchemy", "uvicorn"}
    heavy |= {f"autotuner.core.{name}" for name in ("profile", "run", "trial", "trial_spec")}
    assert imported_by("predict", *JOB) & (heavy | {"autotuner.catalog.huggingface"}) == set()


def test_an_address_without_a_scheme_is_refused_with_one_that_has_it(cli: CommandLine) -> None:
    cli.run("predict", *JOB, "--server", "127.0.0.1", code=2)
    assert "nearest legal value: http://127.0.0.1:8000" in " ".join(cli.error.split())
