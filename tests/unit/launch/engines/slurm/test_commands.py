from __future__ import annotations

import pytest

from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.slurm.commands import CommandFailed, SlurmCommands


@pytest.fixture
def commands() -> SlurmCommands:
    return SlurmCommands(timeout_s=20.0, slurm_conf="/etc/here/slurm.conf")


def test_what_a_command_printed_comes_back(commands: SlurmCommands) -> None:
    assert commands("echo", "$HOME; rm -rf /") == "$HOME; rm -rf /\n"


def test_a_command_gets_none_of_the_services_secrets(commands: SlurmCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
    printed = commands("env")
    assert "secret" not in printed
    assert "SBATCH" not in printed
    assert "SLURM_CONF=/etc/here/slurm.conf" in printed


def test_without_one_of_the_operators_the_services_own_configuration_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/there/slurm.conf")
    assert "SLURM_CONF=/etc/there/slurm.conf" in SlurmCommands(timeout_s=20.0)("env")


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(EngineUnavailable, match=r"has not answered for 0\.2 s"):
        SlurmCommands(timeout_s=0.2)("sleep", "60")


def test_a_command_that_is_missing_is_an_engine_that_cannot_be_had(commands: SlurmCommands) -> None:
    with pytest.raises(EngineUnavailable, match="cannot run squeue-of-nowhere"):
        commands("squeue-of-nowhere")


@pytest.mark.parametrize(
    "said",
    [
        "squeue: error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: If munged is up, restart with --num-threads=10",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
    ],
)
def test_a_controller_that_is_away_or_full_may_answer_later(commands: SlurmCommands, said: str) -> None:
    with pytest.raises(EngineUnavailable) as raised:
        commands("sh", "-c", f"echo {said!r} >&2; exit 1")
    assert said in str(raised.value)


def test_any_other_error_is_an_answer(commands: SlurmCommands) -> None:
    with pytest.raises(CommandFailed, match="sh: sbatch: error: invalid partition specified: nowhere"):
        commands("sh", "-c", "echo sbatch: error: invalid partition specified: nowhere >&2; exit 1")


def test_an_error_without_a_word_has_its_code(commands: SlurmCommands) -> None:
    with pytest.raises(CommandFailed, match="it left with code 3"):
        commands("sh", "-c", "exit 3")
