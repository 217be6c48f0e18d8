"""The command line: its help, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer

from autotuner.cli.flags import SELDOM
from autotuner.cli.main import app
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import inputs_of, to_document
from tests.cases import each
from tests.unit.cli.command_line import JOB, CommandLine


# ---------------------------------------------------------------- main
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


def test_help_the_version_and_a_prediction_import_nothing_heavy() -> None:
    heavy = {"alembic", "fastapi", "httpx", "numpy", "optuna", "psutil", "sqlalchemy", "uvicorn"}
    assert imported_by("--help") & heavy == set()
    assert imported_by("predict", "--help") & heavy == set()
    assert imported_by("--version") & {"alembic", "fastapi", "numpy", "sqlalchemy", "torch", "uvicorn"} == set()


def test_a_call_without_a_command_prints_the_help_and_its_version_alone(cli: CommandLine) -> None:
    assert "Find the parallel layout that trains a transformer fastest." in cli.run(code=2)
    assert cli.run("--version") == f"autotuner {version('parallelism-autotuner')}\n"


def test_names_of_the_catalog_are_read_in_any_case_and_printed_in_lower_case(cli: CommandLine) -> None:
    job = ["--global-batch-size", "64", "--seq-len", "8k", "--layout", "FSDP8 mb1 recompute-full"]
    told = cli.run("predict", "--model", "Llama-3-8B", "--cluster", "H100:8", "--stack", "Torch", *job)
    assert told == cli.run("predict", "--model", "llama-3-8b", "--cluster", "h100:8", "--stack", "torch", *job)


def test_a_prediction_imports_no_server_no_sampler_no_database_and_nothing_of_trials() -> None:
    heavy = {"alembic", "fastapi", "httpx", "optuna", "sqlalchemy", "uvicorn"}
    heavy |= {f"autotuner.core.{name}" for name in ("run", "trial", "trial_spec")}
    assert imported_by("predict", *JOB) & (heavy | {"autotuner.catalog.huggingface"}) == set()


WIDTH = 78
"""Characters of a line that a terminal of 80 columns shows without a break; help is indented by one on each side."""

USUAL = {"model", "cluster", "global_batch_size", "seq_len", "layout", "limit", "server", "as_json"}


def leaves(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Return every command that does something, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


APP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = dict(leaves(APP))
GROUPS: dict[str, Any] = {name: one for name, one in APP.commands.items() if hasattr(one, "commands")}


def num_sentences(text: str) -> int:
    return len(re.findall(r"[.!?;](?=\s|$)", text))


def example_of(name: str) -> list[str]:
    """Return the words of a command's example, as a shell would split them."""
    last = COMMANDS[name].help.split("\n\n")[-1]
    assert last.startswith("Example: autotuner ")
    return shlex.split(last.removeprefix("Example: ").replace("\\\n", " "))


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the command that words call, and its options; the command does not run."""
    command, called = APP, list[str]()
    while hasattr(command, "commands"):
        called.append(words[len(called)])
        command = command.commands[called[-1]]
    return " ".join(called), command.make_context(called[-1], words[len(called) :]).params


def panel_of(option: Any) -> str:
    return str(getattr(option, "rich_help_panel", None) or "")


@each("name", COMMANDS)
def test_the_help_of_a_command_is_one_sentence_then_short_and_ends_with_an_example_that_parses(name: str) -> None:
    first = COMMANDS[name].help.split("\n\n")[0].replace("\n", " ")
    assert first.endswith(".")
    assert num_sentences(first) == 1
    _, *others = COMMANDS[name].help.split("\n\n")
    assert len(others) in {1, 2}
    assert all(len(line) <= WIDTH for paragraph in others for line in paragraph.splitlines())
    program, *words = example_of(name)
    assert program == "autotuner"
    assert parsed(words)[0] == name
    options = [one for one in COMMANDS[name].params if one.param_type_name == "option"]
    panels = list(dict.fromkeys(panel_of(one) for one in options))
    assert {panel_of(one) for one in options if one.name in USUAL and not one.multiple} <= {""}
    assert SELDOM not in panels[:-1] or not any(panels[panels.index(SELDOM) + 1 :])


@each("name", GROUPS)
def test_the_help_of_a_group_is_one_sentence(name: str) -> None:
    assert GROUPS[name].help.endswith(".")
    assert num_sentences(GROUPS[name].help) == 1


@each("name", [name for name, one in COMMANDS.items() if any(p.name == "space" for p in one.params)])
def test_a_command_with_many_options_says_which_are_seldom_used(name: str) -> None:
    assert SELDOM in {panel_of(one) for one in COMMANDS[name].params}


# ---------------------------------------------------------------- --seq-len
def seq_len(text: str) -> Any:
    return to_document(inputs_of(SweepCreate), {"seq_len": text})["workload"]["seq_len"]


@each(
    ("text", "tokens"),
    [("8192", 8192), ("1", 1), ("8k", 8192), ("8K", 8192), ("128k", 131072), ("1m", 1_048_576), ("1M", 1_048_576)],
)
def test_a_sequence_length_is_a_number_of_tokens_or_of_1024_or_1048576_of_them(text: str, tokens: int) -> None:
    assert seq_len(text) == tokens


@each("text", ["8.5k", "0", "0k", "-1", "abc", "k", "8kk", "8g"])
def test_a_sequence_length_that_is_no_whole_number_is_refused_with_the_value_and_the_rule(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"{text!r}: must be a whole number of tokens, 1 or more")):
        seq_len(text)


def test_every_command_reads_a_sequence_length_alike_and_a_plan_takes_the_usual_one() -> None:
    options = {name: one for name, command in COMMANDS.items() for one in command.params if one.name == "seq_len"}
    assert {one.metavar for one in options.values()} == {"TOKENS"}
    assert {"predict", "sweep", "plan", "gate", "layers", "import", "export", "retune add"} <= set(options)
    assert parsed(["plan", "--model", "llama-3-8b", "--tokens", "1T"])[1]["seq_len"] == "8192"


# ---------------------------------------------------------------- refusals
ENGINES = """
[two]
kind = "processes"
folder = "nodes"
queues = ["short", "long"]
"""
DREAM = {"base": "h100:8", "name": "dream", "engine": "simulated"}

GIVEN = shlex.join(JOB)
LAYOUT = "fsdp8 tp8 mb1 sp recompute-full"
TODAY = "--layout 'fsdp8 mb1 recompute-selective'"
PAIR = "cluster add pair --accelerator cpu --nodes 2 --per-node 2"
SWEEP = f"sweep {GIVEN} --no-wait"
OF_A_LARGE_JOB = "sweep --model llama-3-70b --global-batch-size 1024 --seq-len 8192 --no-wait"
PLAN = "plan --model llama-3-8b --tokens 100B --global-batch-size 256"
GATE = "gate --model llama-3-8b --cluster dream.json --global-batch-size 64 --seq-len 8192"
PREDICTED = (
    "gate --predict --no-dry-run --model llama-3-70b --cluster h100:64x8 --global-batch-size 1024 --seq-len 8192"
)
DRY_RUN = "dry-run --model llama-3-70b --cluster h100:64 --global-batch-size 64 --seq-len 8192"

REFUSED = [
    (f"predict {GIVEN} --model llama-3-70x", 3, "did you mean 'llama-3-70b'"),
    (f"predict {GIVEN} --cluster h100:63", 2, "nearest legal value"),
    (f"predict {GIVEN} --global-batch-size 0", 2, "--global-batch-size = 0: must be above 0"),
    (f"predict {GIVEN} --space {{", 2, "must be JSON"),
    (f"""predict {GIVEN} --space '{{"recompte": ["none"]}}'""", 2, "recompute"),
    (f"predict {GIVEN} --model missing.json", 2, "cannot be read"),
    (f"predict {GIVEN} --server http://127.0.0.1:9", 5, "autotuner serve"),
    (f"predict {GIVEN} --server 127.0.0.1", 2, "for example http://127.0.0.1:8000"),
    (f"predict {GIVEN} --limit 0", 2, "limit"),
    (f"predict {GIVEN} --stack megatrn", 3, "did you mean 'megatron'"),
    (f"predict {GIVEN} --seq-len 8.5k", 2, "'8.5k': must be a whole number of tokens, 1 or more, such as 8192 or 8k"),
    (f"explain {GIVEN} --layout tp8", 2, "accelerators of the cluster, 64, but it is 8"),
    (f"explain {GIVEN} --layout fspd64", 2, "nearest legal value: fsdp64"),
    (f"explain {GIVEN} --layout {{", 2, "must be the short form of this field, or JSON"),
    (f"""explain {GIVEN} --layout '{{"tensor_paralel_degree": 8}}'""", 2, "tensor_parallel_degree"),
    (f"explain {GIVEN} --layout missing.json", 2, "cannot be read"),
    (f"explain {GIVEN} --layout fsdp64 --stack megatrn", 3, "did you mean 'megatron'"),
    (f"explain {GIVEN}", 2, "--layout"),
    ("explain sw-none-0000", 3, "no trial 'sw-none-0000'"),
    ("explain sw-none-0000 --global-batch-size 8", 2, "cannot be used together with the id of a trial"),
    ("explain sw-none-0000 --stack torch", 2, "cannot be used together with the id of a trial"),
    (f"export '{LAYOUT}' {GIVEN} --format fortran", 2, "must be one of megatron-lm"),
    (f"export '{LAYOUT}' {shlex.join(JOB[:-2])} --format torchrun", 2, "--seq-len"),
    (f"export fsdp7 {GIVEN} --format torchrun", 2, "of the cluster, 64, but it is 7"),
    (f"export fspd8 {GIVEN} --format torchrun", 2, "nearest legal value: fsdp8"),
    ("export sw-none-0000 --format torchrun", 3, "no trial 'sw-none-0000'"),
    (f"export sw-none-0000 {GIVEN} --format torchrun", 2, "cannot be used together with the id of a trial"),
    (f"export '{LAYOUT}' {GIVEN} --format torchrun --output /dev/null/x", 2, "cannot be written"),
    *(  # scripts that their own trial would refuse
        (
            f"export 'fsdp64 mb1 flash_3' {GIVEN} --stack megatron-core --format {wanted}",
            2,
            "nearest legal value: flash",
        )
        for wanted in ("torchrun", "sbatch")
    ),
    ("import missing.sh", 2, "cannot be read"),
    ("import -- --some flags", 2, "is not recognised as a configuration of a known format"),
    ("import --format fortran -- --bf16", 2, "must be one of megatron-lm"),
    ("import 'once upon a time'", 2, "is not recognised as a configuration of a known format"),
    (f"{PLAN} --deadline 30", 2, "30d"),
    (f"{PLAN} --price h100", 2, "h100=2.1"),
    (f"{PLAN} --price 2.3", 2, "such as h100=2.1"),
    (f"{PLAN} --sizes many", 2, "must be a number"),
    (
        f"{PLAN} --sizes 8.5",
        2,
        "must be a whole number, or several of them with commas between; nearest legal value: 8",
    ),
    (f"{PLAN} --more-memory 40GB", 2, "nearest legal value: 40"),
    (f"{PLAN} --accelerators h10", 3, "h100"),
    (f"{SWEEP} --objective mfus", 2, "tokens_per_s"),
    (f"{SWEEP} --parallel 0", 2, "--parallel = 0: must be 1 or more"),
    (f"{SWEEP} --gate-seeds 1", 2, "--gate-seeds = 1: must be from 2 to 10"),
    (f"{SWEEP} --min-gain 5", 2, "--min-gain = 5.0: must be from 0 to 1"),
    (f"{SWEEP} --fault-trace '7;0_1;0.06|30;late'", 2, "30;late"),
    (f"{SWEEP} --fault-steps 9", 2, "--fault-trace"),
    (f"{OF_A_LARGE_JOB} --for h100:256 --cluster h100:64", 2, "give exactly one of the two"),
    (f"{OF_A_LARGE_JOB} --on h100:64", 2, "give exactly one of the two"),
    (f"""sweep {GIVEN} --cluster v100:512 --space '{{"precision": ["fp32"]}}'""", 2, "GPUs"),
    ("rules sw-none", 3, "sw-none"),
    (f"{PAIR} --engine tow", 2, "must be one of local, simulated, two; nearest legal value: two"),
    (f"{PAIR} --engine two --queue shrt", 2, "must be one of short, long; nearest legal value: short"),
    ("cluster add x", 2, "--accelerator"),
    ("cluster add x --accelerator h1000", 3, "did you mean 'h100"),
    ("cluster add x --from missing.json", 2, "cannot be read"),
    ("cluster show pair", 3, "pair"),
    ("cluster remove pair", 3, "pair"),
    ("cluster check pair", 3, "pair"),
    (f"{GATE} {TODAY} --against fsdp8", 2, "--against"),  # a layout to predict against
    (f"{GATE} --layout fsdp7", 2, "but it is 7"),
    (f"{GATE} {TODAY} --tolerance 0.2", 2, "tolerance"),
    (f"{GATE} {TODAY} --trainer ours", 3, "ours"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 sp' --against 'fsdp16 tp8 pp5 1f1b mb1 sp'", 2, "--against"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 spp'", 2, "spp"),
    (PREDICTED, 2, "--layout"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 sp' --junit /dev/null/junit.xml", 2, "--junit"),
    ("baselines --remove mian", 3, "mian"),
    (f"{DRY_RUN} --layout 'fsdp3 tp8 pp4 mb1'", 2, "but it is 96"),
    (f"{DRY_RUN} --layout 'fsdp2 tp8 pp4 mb1' --rank 64", 2, "must be a rank of the layout, below 64"),
    (f"{DRY_RUN} --layout 'fsdp2 tp8 pp5x'", 2, "is not a word of a layout"),
    ("profile --links --keep", 2, "because --links always makes a new measurement"),
    ("backtest nowhere.csv", 2, "nowhere.csv"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_an_error_has_its_exit_code_prints_no_output_and_names_the_legal_value(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str, code: int, said: str
) -> None:
    monkeypatch.chdir(cli.directory)
    (cli.directory / "dream.json").write_text(json.dumps(DREAM))
    (cli.directory / "engines.toml").write_text(ENGINES)
    monkeypatch.setenv("AUTOTUNER_ENGINES", "engines.toml")
    assert cli.run(*shlex.split(line), code=code) == ""
    assert said in " ".join(cli.error.replace("│", " ").split())


@pytest.mark.parametrize("command", ["show", "cancel", "rules", "explain"])
def test_an_impossible_id_is_refused_before_a_request_is_sent(first_cli: CommandLine, command: str) -> None:
    assert "must be the id of a" in first_cli.error_of(command, "sweeps/x.json")
    assert list(first_cli.directory.iterdir()) == []
