"""What no command takes: it ends with the exit code of its kind, prints nothing, and says what is right."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.unit.cli.command_line import JOB, CommandLine

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
OF_A_LARGE_JOB = "sweep --model llama-3-70b --global-batch 1024 --seq-len 8192 --no-wait"
PLAN = "plan --model llama-3-8b --tokens 100B --global-batch 256"
GATE = "gate --model llama-3-8b --cluster dream.json --global-batch 64 --seq-len 8192"
PREDICTED = "gate --predict --no-dry-run --model llama-3-70b --cluster h100:64x8 --global-batch 1024 --seq-len 8192"
DRY_RUN = "dry-run --model llama-3-70b --cluster h100:64 --global-batch 64 --seq-len 8192"

REFUSED = [
    (f"predict {GIVEN} --model llama-3-70x", 3, "did you mean 'llama-3-70b'"),
    (f"predict {GIVEN} --cluster h100:63", 2, "nearest legal value"),
    (f"predict {GIVEN} --global-batch 0", 2, "--global-batch = 0: must be above 0"),
    (f"predict {GIVEN} --space {{", 2, "must be JSON"),
    (f"""predict {GIVEN} --space '{{"recompte": ["none"]}}'""", 2, "recompute"),
    (f"predict {GIVEN} --model missing.json", 2, "cannot be read"),
    (f"predict {GIVEN} --server http://127.0.0.1:9", 5, "autotuner serve"),
    (f"predict {GIVEN} --server 127.0.0.1", 2, "nearest legal value: http://127.0.0.1:8000"),
    (f"predict {GIVEN} --limit 0", 2, "limit"),
    (f"predict {GIVEN} --stack megatrn", 3, "did you mean 'megatron'"),
    (f"predict {GIVEN} --seq-len 8.5k", 2, "'8.5k': must be a whole number of tokens, 1 or more, such as 8192 or 8k"),
    (f"explain {GIVEN} --layout tp8", 2, "the degrees multiply to 8 ranks, the cluster has 64"),
    (f"explain {GIVEN} --layout fspd64", 2, "nearest legal value: fsdp64"),
    (f"explain {GIVEN} --layout {{", 2, "must be words or JSON"),
    (f"""explain {GIVEN} --layout '{{"tensor_paralel_degree": 8}}'""", 2, "tensor_parallel_degree"),
    (f"explain {GIVEN} --layout missing.json", 2, "cannot be read"),
    (f"explain {GIVEN} --layout fsdp64 --stack megatrn", 3, "did you mean 'megatron'"),
    (f"explain {GIVEN}", 2, "--layout"),
    ("explain sw-none-0000", 3, "no trial 'sw-none-0000'"),
    ("explain sw-none-0000 --global-batch 8", 2, "must be left out when a trial is given"),
    ("explain sw-none-0000 --stack torch", 2, "must be left out when a trial is given"),
    (f"export '{LAYOUT}' {GIVEN} --format fortran", 2, "must be one of megatron-lm"),
    (f"export '{LAYOUT}' {shlex.join(JOB[:-2])} --format torchrun", 2, "--seq-len"),
    (f"export fsdp7 {GIVEN} --format torchrun", 2, "the cluster has 64"),
    (f"export fspd8 {GIVEN} --format torchrun", 2, "nearest legal value: fsdp8"),
    ("export sw-none-0000 --format torchrun", 3, "no trial 'sw-none-0000'"),
    (f"export sw-none-0000 {GIVEN} --format torchrun", 2, "must be left out when a trial is given"),
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
    ("import -- --some flags", 2, "looks like no configuration that is known"),
    ("import --format fortran -- --bf16", 2, "must be one of megatron-lm"),
    ("import 'once upon a time'", 2, "looks like no configuration that is known"),
    (f"{PLAN} --deadline 30", 2, "30d"),
    (f"{PLAN} --price h100", 2, "h100=2.1"),
    (f"{PLAN} --price 2.3", 2, "h100=2.3"),
    (f"{PLAN} --sizes many", 2, "must be a number"),
    (f"{PLAN} --sizes 8.5", 2, "must be a whole number, others behind commas; nearest legal value: 8"),
    (f"{PLAN} --more-memory 40GB", 2, "nearest legal value: 40"),
    (f"{PLAN} --accelerators h10", 3, "h100"),
    (f"{SWEEP} --objective mfus", 2, "tokens_per_s"),
    (f"{SWEEP} --parallel 0", 2, "--parallel = 0: must be 1 or more"),
    (f"{SWEEP} --gate-seeds 1", 2, "--gate-seeds = 1: must be 2 to 10"),
    (f"{SWEEP} --min-gain 5", 2, "--min-gain = 5.0: must lie in 0..1"),
    (f"{SWEEP} --fault-trace '7;0_1;0.06|30;late'", 2, "30;late"),
    (f"{SWEEP} --fault-steps 9", 2, "--fault-trace"),
    (f"{OF_A_LARGE_JOB} --for h100:256 --cluster h100:64", 2, "one of both must be given"),
    (f"{OF_A_LARGE_JOB} --on h100:64", 2, "one of both must be given"),
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
    (f"{GATE} --layout fsdp7", 2, "7 ranks"),
    (f"{GATE} {TODAY} --tolerance 0.2", 2, "tolerance"),
    (f"{GATE} {TODAY} --trainer ours", 3, "ours"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 sp' --against 'fsdp16 tp8 pp5 1f1b mb1 sp'", 2, "--against"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 spp'", 2, "spp"),
    (PREDICTED, 2, "--layout"),
    (f"{PREDICTED} --layout 'fsdp16 tp8 pp4 1f1b mb1 sp' --junit /dev/null/junit.xml", 2, "--junit"),
    ("baselines --remove mian", 3, "mian"),
    (f"{DRY_RUN} --layout 'fsdp3 tp8 pp4 mb1'", 2, "96 ranks"),
    (f"{DRY_RUN} --layout 'fsdp2 tp8 pp4 mb1' --rank 64", 2, "must be below the 64 ranks"),
    (f"{DRY_RUN} --layout 'fsdp2 tp8 pp5x'", 2, "is no word of a layout"),
    ("profile --links --keep", 2, "measures links whatever is stored"),
    ("backtest nowhere.csv", 2, "nowhere.csv"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_is_wrong_ends_with_its_exit_code_prints_nothing_and_says_what_is_right(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str, code: int, said: str
) -> None:
    monkeypatch.chdir(cli.directory)
    (cli.directory / "dream.json").write_text(json.dumps(DREAM))
    (cli.directory / "engines.toml").write_text(ENGINES)
    monkeypatch.setenv("AUTOTUNER_ENGINES", "engines.toml")
    assert cli.run(*shlex.split(line), code=code) == ""
    assert said in " ".join(cli.error.replace("│", " ").split())


@pytest.mark.parametrize("command", ["show", "cancel", "rules", "explain"])
def test_what_cannot_be_the_id_of_anything_is_refused_before_a_service_is_asked(
    first_cli: CommandLine, command: str
) -> None:
    assert "must be the id of a" in first_cli.error_of(command, "sweeps/x.json")
    assert list(first_cli.directory.iterdir()) == []
