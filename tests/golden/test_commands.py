"""Every command of the command line at least once: exit code, standard output and standard error, text and JSON.

Each chapter is a short story on a database of its own. Sweeps, gates and retune runs use clusters of the engine
`simulated`, so nothing is launched and the results follow from seeds. The stories reach every exit code from 0 to 11.
`serve`, `worker` and `dry-run` are recorded only by the input that they refuse; `profile` only shows stored profiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from autotuner.core.access import Scope
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import memory_store, open_store
from tests.announcements import announce, announcement, receiver, status
from tests.api.access import People
from tests.api.service import StoreDriver, app_on, serve, serve_asgi
from tests.builders import cpu_layout, failure, measurement
from tests.golden.command_story import CommandStory, leaf_commands
from tests.golden.golden import Golden
from tests.runs import claimed, give_up_delivery, lease_of
from tests.studies import reached_trial, study_trial

HERE = Path(__file__).parent
IMPORTS = HERE / "imports"
TABLES = HERE.parent / "published"

CLUSTER, BATCH = "--cluster h100:16", "--global-batch-size 128 --seq-len 8192"
JOB = f"--model llama-3-8b {CLUSTER} {BATCH}"
LAYOUT = "'fsdp8 tp2 mb1 sp recompute-selective flash bf16'"
_CHOICES = {"precision": ["bf16"], "compiled": [False], "micro_batch_size": [1, 2], "tensor_parallel_degree": [1]}
SPACE = f"--space '{json.dumps(_CHOICES)}'"

FAR = {"name": "far", "accelerator": "h100", "num_nodes": 1, "accelerators_per_node": 4, "engine": "simulated"}
"""A cluster on which trials are simulated."""


def far_job(story: CommandStory) -> str:
    """Return the options of a small job on the simulated cluster."""
    return f"--model gpt-3-125m --cluster {story.file('far.json', FAR)} --global-batch-size 32 --seq-len 1024"


def tell_predictions(story: CommandStory) -> None:
    measured = story.file("measured.csv", "layout,step_time_s\nfsdp8 tp2 mb1 sp,9.5\nfsdp16 mb1 flash bf16,8.1\n")
    story.both(f"predict {JOB} --limit 2 {SPACE}")
    story.run(f"predict {JOB} --current 'zero8 tp2 mb1' --format megatron-lm --stack megatron-core --limit 1 {SPACE}")
    story.run(f"predict {JOB} --objective tokens_per_s --limit 1 --measured {measured} {SPACE}")
    story.run(f"predict {JOB} --layout {LAYOUT} --lengths '1024:2, 8192' --price 2 --tariff france")
    story.run(f"predict {JOB} --layout 'dp16 mb1' --link-health '0_1; 0.03; 200mbit'")
    story.both(f"explain {JOB} --layout {LAYOUT}")
    story.both(f"layers {JOB} --measured {measured} {SPACE}")
    story.both(f"phases {JOB} --phases 'main: 80 % | thin: 20 %; bandwidth 10gbit' --tokens 1T")
    story.both(f"plan --model llama-3-8b --tokens 100B --accelerators h100 --sizes 16 {SPACE}")
    story.both(f"gate --predict --no-dry-run {JOB} --layout {LAYOUT} --against {LAYOUT}")


def tell_formats(story: CommandStory) -> None:
    story.both(f"export {LAYOUT} --format megatron-lm {JOB}")
    story.run(f"export {LAYOUT} --format deepspeed --output {story.directory}/out {JOB}")
    story.both(f"import {IMPORTS}/bridge_recipe.txt")
    story.run(f"import {IMPORTS}/megatron_flags_of_nobody.txt --cluster h100:16")
    story.both(f"backtest {TABLES}/repo_reports_misc.csv --seeds 2")
    story.run(f"rules {TABLES}/aleph_alpha_layouts_sweep.csv")


def tell_catalog(story: CommandStory) -> None:
    for command in ("catalog", "stacks", "cluster networks", "engines", "trainers"):
        story.both(command)
    story.run("support")
    story.both("support llama-3-8b h100 --stack nemo")


def tell_clusters(story: CommandStory) -> None:
    add = "cluster add pair --accelerator h100 --nodes 2 --engine simulated"
    switches = "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\nSwitchName=s2 Switches=s[0-1]"
    story.run("cluster list")
    story.run(f"{add} --queue plain")
    story.json("cluster add wide --accelerator a100 --nodes 4 --topology fat-tree-2to1")
    story.run(f"{add} --oversubscription 2")
    story.both("cluster list")
    story.both("cluster show pair")
    story.both(f"cluster topology {story.file('topology.conf', switches)} --cluster h100:64")
    story.run("cluster check pair --no-wait")
    story.both("cluster check pair --cancel")
    story.run("cluster check nowhere")
    story.run("cluster remove pair")
    story.json("cluster remove wide")
    story.run("cluster remove pair")


def tell_sweeps(story: CommandStory) -> None:
    sweep = f"sweep {far_job(story)} {SPACE} --trials 2 --min-gain 0"
    story.run(f"{sweep} --name first")
    done = story.json(f"{sweep} --seed 4 --patience 2")
    name, trial = done["sweep"]["id"], done["trials"]["items"][0]["id"]
    story.both(f"show {name}")
    story.both(f"front {name} --metrics mfu,simplicity")
    story.both(f"rules {name}")
    story.both(f"explain {trial}")
    story.both(f"export {trial} --format torchtitan")
    story.both(f"layers {name}")
    for _ in range(2):  # the second finds the file of the first
        story.run(f"study {name} {story.directory}/study.db")
    story.run(f"comment {name} 'tried with NCCL 2.28' --tag baseline --tag paper")
    story.run(f"comment {name} --trial 0 --tag 'a b'")
    story.run(f"comments {name}")
    story.json("list --tag paper")
    story.run(f"rerun {trial}")
    story.json(f"rerun {trial} --no-wait")
    story.run(f"extend {name} --trials 3")
    story.both("calibrate")


def tell_queued_sweeps(story: CommandStory) -> None:
    sweep = f"sweep {far_job(story)} {SPACE} --no-wait"
    story.run(sweep)
    name = story.json(f"{sweep} --trials 3 --parallel 2")["id"]
    story.run(f"pause {name}")
    story.json(f"resume {name} --no-wait")
    story.json(f"pause {name}")
    story.run(f"resume {name} --no-wait")
    story.run(f"extend {name} --no-wait")
    story.json(f"extend {name} --minutes 3 --no-wait")
    story.run(f"extend {name} --trials 9 --no-wait")
    story.run(f"clone {name} --name wider --trials 5 --no-wait")
    story.json(f"clone {name} --seed 4 --no-wait")
    story.run(f"cancel {name}")
    story.json(f"cancel {name}")
    story.run(f"resume {name}")
    story.run(f"show {name}")
    story.json(f"sweep --model llama-3-70b {BATCH} --for h100:256 --on h100:16 {SPACE} --no-wait")
    story.json(
        f"{sweep} --no-convergence-gate --fault-trace '7;0_1;0.06|30;0_1;0' --fault-steps 40 --front mfu,simplicity"
    )


def tell_measured_trials(story: CommandStory) -> None:
    """Store trials as a worker does that measured them, then read, copy and thin the database."""
    story.both("migrate")
    store = open_store(story.database_url)
    driver = StoreDriver(store=store)
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.ended(sweep, 1, measurement(mfu=0.5), layout=cpu_layout(data_parallel_replicate_degree=2))
    driver.ended(sweep, 2, failure(), layout=cpu_layout(micro_batch_size=2, tensor_parallel_degree=2))
    driver.finish(sweep)
    store.close()
    story.run(f"show {sweep.id}")
    story.both("calibrate")
    story.run("calibrate --on h100:64")
    story.run(f"explain {sweep.id}-0001")
    story.run(f"explain {sweep.id}-0002")
    for _ in range(2):  # the second finds the file of the first
        story.run(f"backup {story.directory}/copy.db")
    story.run(f"restore {story.directory}/copy.db")
    story.set("AUTOTUNER_DATABASE_URL", f"sqlite:///{story.directory}/elsewhere.db")
    story.run(f"restore {story.directory}/copy.db")
    story.run(f"show {sweep.id}")
    story.run("thin")
    story.json("thin --days 0")


def tell_gates(story: CommandStory) -> None:
    far = story.file("far.json", FAR | {"accelerators_per_node": 8})
    gate = f"gate --model llama-3-8b --cluster {far} --global-batch-size 64 --seq-len 8192"
    today, files = f"{gate} --layout 'fsdp8 mb1 recompute-selective'", ("junit", "summary", "badge")
    story.run(today)
    story.json(f"{today} --set-baseline")
    story.run(" ".join([today, *(f"--{name} {story.directory}/{name}" for name in files)]))
    for name in files:
        story.read(name)
    story.run(f"{gate} --layout 'fsdp8 mb1 recompute-full'")
    story.json(f"{gate} --layout 'fsdp8 mb8'")
    story.both("baselines")
    story.run("baselines --remove mian")
    story.json("baselines --remove main")


def tell_retunes(story: CommandStory) -> None:
    when = f"--cron '0 2 * * *' --time-zone Europe/Berlin {far_job(story)} {SPACE}"
    story.stop_clock(1_800_000_000.0)  # the minute in which a run is due seeds it
    story.run("retune list")
    story.run(f"retune add far {when} --layout 'dp4 mb1 flash bf16' --no-search")
    story.json(f"retune add near {when} --trials 7 --adopt")
    story.run(f"retune add new {when} --on-new-environment")
    story.run(f"retune add far {when}")
    story.both("retune show far")
    story.run("retune run far")
    story.json("retune run far")
    story.both("retune history far")
    story.both("retune list")
    for verb in ("pause", "resume"):
        story.run(f"retune {verb} far")
        story.json(f"retune {verb} near")
    story.run("retune adopt far")
    story.run("retune adopt far --layout 'dp4 mb2'")
    story.json("retune adopt near --layout 'dp4 mb2'")
    for _ in range(2):  # the second finds the run of the first unfinished
        story.run("retune run far --no-wait")
    story.run("retune remove far")
    story.json("retune remove near")
    story.run("retune show nera")


def tell_optimizer_studies(story: CommandStory) -> None:
    goal = "--layout 'dp2 mb1 flash bf16' --target-loss 5"
    tune = f"optimizer tune --model gpt-3-125m --cluster h100:2 --global-batch-size 8 --seq-len 256 {goal} --no-wait"
    sizes = """--space '{"global_batch_sizes": [8, 64], "optimizers": ["adamw", "lamb"]}'"""
    story.run("optimizer list")
    story.run(f"optimizer tune {far_job(story)} {goal}")
    story.run(f"{tune} --trials 2")
    study = story.json(f"{tune} {sizes} --no-prune --name second")["id"]
    store = open_store(story.database_url)
    for _ in range(2):  # the older study is claimed first
        held = claimed(store, "study", now=1e12)
    for trial in (reached_trial(0, 2.0, 3.0), reached_trial(1, 8.0, 1.0), study_trial(2, 6.0, 5.9)):
        store.optimizer_studies.save_trial(replace(trial, study_id=study), lease_of(held))
    store.close()
    story.both("optimizer list")
    story.both(f"optimizer show {study}")
    story.both(f"optimizer cancel {study}")
    story.run("optimizer show os-none")


def tell_access(story: CommandStory) -> None:
    story.run("token list")
    text = story.run("token add ada --unfinished-sweeps 2 --accelerator-hours-per-day 64")
    other = story.json("token add ci --scope read --expires-in-days 3")["token"]["id"]
    story.both("token list")
    story.run(f"token revoke {text.split('at_')[1].split('_')[0]}")
    story.json(f"token revoke {other}")
    story.run("token revoke nobody")
    story.run("token list")
    story.both("audit --limit 3")
    story.run("audit --caller ada")


def tell_webhooks(story: CommandStory) -> None:
    story.set("AUTOTUNER_WEBHOOK_ALLOW", "127.0.0.1")
    story.run("webhook list")
    story.run("webhook add ours https://hooks.example.com/services/credential --kind gate.failed")
    story.json("webhook add all https://hooks.example.com/ --format slack")
    story.run("webhook add all https://elsewhere.example.com/")
    story.run("webhook add mine https://10.0.0.1/")
    with receiver(status(200), status(200), status(403), status(403)) as there:
        story.run(f"webhook add here http://127.0.0.1:{there.port}/")
        for _ in range(2):  # accepted, then not
            story.both("webhook test here")
    story.both("webhook list")
    application = build(Settings(num_workers=0))
    announcements = application.store.announcements
    announce(announcements, announcement())
    deliveries = {one.webhook: one.id for one in announcements.deliveries()[0]}
    story.both("webhook deliveries all")
    for one in deliveries.values():
        give_up_delivery(application.store, one, "HTTP 500 Internal Server Error", now=0.0)
    application.close()
    story.both("webhook deliveries all --state dead")
    for _ in range(2):  # the second finds it pending
        story.run(f"webhook send-again {deliveries['all']}")
    story.json(f"webhook send-again {deliveries['here']}")
    story.run("webhook send-again dl-none")
    story.run("webhook remove ours")
    story.json("webhook remove all")


def tell_refusals(story: CommandStory) -> None:
    story.run("--version")
    story.run(f"predict {JOB} --layout tp3")
    story.run(f"predict {JOB} --layout fspd16")
    story.run(f"predict {JOB} --objective mfus")
    story.run(f"predict --model lama-3-8b {CLUSTER} {BATCH}")
    story.both(f"predict --model llama-3-70b --cluster h100:8 {BATCH} {SPACE}")
    large = (
        "gate --predict --no-dry-run --model llama-3-70b --cluster h100:64x8 --global-batch-size 1024 --seq-len 8192"
    )
    for layout in ("fsdp16 tp8 pp4 gpipe mb1 sp", "fsdp8 tp8 pp8 1f1b mb1 sp"):  # failed, undecided
        story.run(f"{large} --against 'fsdp16 tp8 pp4 1f1b mb1 sp' --layout '{layout}'")
    story.run(f"sweep {far_job(story)} {SPACE} --trials 1 --timeout 0.5")
    for command in ("show sw-none", "cancel sw-none", "rules sw-none", "explain sw-none-0000"):
        story.run(command)
        story.run(f"{command.split()[0]} sweeps/x.json")
    story.both("profile --show")
    story.run("profile --links --keep")
    story.run(f"dry-run {JOB} --layout 'fsdp8 tp4'")
    story.run(f"dry-run {JOB} --layout {LAYOUT} --rank 16")
    story.run("serve --port 99999")
    story.run("serve --port 0 --host 0.0.0.0")
    story.run("plan --model llama-3-8b --tokens 100B --deadline 30")
    story.run("cluster list --server http://127.0.0.1:9")
    story.run(f"restore {story.directory}/missing.db")
    story.set("AUTOTUNER_DATABASE_URL", "mysql://somewhere/autotuner")
    story.run("worker")
    story.set("AUTOTUNER_DATABASE_URL", f"sqlite:///{story.file('text.db', 'this is no database')}")
    story.run("worker")
    story.run("migrate")


def tell_servers(story: CommandStory) -> None:
    """Ask a service that wants a token, then one that fails."""
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        people = People(app=app, address=address)
        story.set("AUTOTUNER_SERVER", address)
        story.run("token list")
        story.set("AUTOTUNER_TOKEN", people.token(Scope.RUN))
        story.run("token list")
        story.set("AUTOTUNER_TOKEN", people.token(Scope.ADMIN, "root"))
        story.json("token add ada")
    with serve_asgi(PlainTextResponse("out of order", status_code=500)) as address:
        story.run(f"cluster list --server {address}")


CHAPTERS: Mapping[str, Callable[[CommandStory], None]] = {
    "predictions": tell_predictions,
    "formats": tell_formats,
    "catalog": tell_catalog,
    "clusters": tell_clusters,
    "sweeps": tell_sweeps,
    "queued_sweeps": tell_queued_sweeps,
    "measured_trials": tell_measured_trials,
    "gates": tell_gates,
    "retunes": tell_retunes,
    "optimizer_studies": tell_optimizer_studies,
    "access": tell_access,
    "webhooks": tell_webhooks,
    "refusals": tell_refusals,
    "servers": tell_servers,
}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandStory:
    return CommandStory(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_commands_print_what_they_printed(golden: Golden, story: CommandStory, chapter: str) -> None:
    CHAPTERS[chapter](story)
    golden.check(f"commands/{chapter}", story.told)


def test_every_command_and_every_exit_code_is_in_a_story(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--record"):
        pytest.skip("the stories are being recorded")
    told = [one for chapter in CHAPTERS for one in json.loads((HERE / f"outputs/commands/{chapter}.json").read_text())]
    ran = [one for one in told if "command" in one]
    lines = [f"{one['command']} " for one in ran]
    others = {"doctor", "mcp", "track"}  # they need this machine, an agent or a tracker, and have tests of their own
    assert {name for name in leaf_commands() if not any(line.startswith(f"{name} ") for line in lines)} == others
    assert {one["code"] for one in ran} >= set(range(12))
