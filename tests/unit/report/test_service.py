"""Reports of the service, its machines, the catalog and clusters."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from autotuner.catalog.hardware import load_accelerator, load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.networks import load_preset
from autotuner.catalog.software import load_stack, stack_profiles
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.reading import TopologyReading
from autotuner.core import documents
from autotuner.core.access import AuditEntry, Quota, Scope, Token
from autotuner.core.announcement import Delivery, DeliveryState, PayloadFormat, WebhookStanding
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster_check import CheckFindings, CheckRequest, CheckRun, ClusterCheck
from autotuner.core.documents import write
from autotuner.core.dry_run import CollectiveCount, DryRun, HeldBytes, OperationCounts, RankDryRun
from autotuner.core.health import EngineStanding, WorkerStanding
from autotuner.core.listed import Listed, Stored
from autotuner.core.profile import ClusterLinks, profiled, with_links
from autotuner.core.run import RunState
from autotuner.core.trial_spec import Trainer
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.report.catalog import catalog_report, networks_report, stacks_report
from autotuner.report.cluster import cluster_report, clusters_report, topology_report, topology_section
from autotuner.report.html import Html
from autotuner.report.machine import dry_run_report, profiles_report
from autotuner.report.report import Report
from autotuner.report.service import (
    announcing_report,
    audit_report,
    engines_report,
    running_report,
    tokens_report,
    trainers_report,
    webhooks_report,
)
from autotuner.report.words import number
from autotuner.search.space.trainers import offered_by
from tests.announcements import AT, announcement
from tests.builders import cpu_cluster, cpu_core, link_point, pair_measurements, profile
from tests.unit.catalog.topology import published
from tests.unit.report.surfaces import surfaces


# ---------------------------------------------------------------- service
def told(shown: Report, *figures: str) -> None:
    """Every surface says every figure, with the digits of its kind."""
    for text in surfaces(shown):
        assert [one for one in figures if one not in text] == []


WEBHOOK = WebhookStanding(
    name="ours",
    posts_to="https://hooks.example.com",
    kinds=(announcement().kind,),
    format=PayloadFormat.SLACK,
    created_at=AT,
    num_pending=17,
    num_dead=2345,
    created_by="ada",
)


def delivery(**changes: Any) -> Delivery:
    """One that failed twice and is tried again."""
    fields = {"attempts": 2, "next_attempt_at": AT + 3600, "detail": "HTTP 500", "state": DeliveryState.PENDING}
    return Delivery(
        **{"id": "dl-1", "webhook": "ours", "announcement": announcement(), "created_at": AT, **fields, **changes}
    )


def test_webhooks_are_reported_with_what_waits_and_what_was_given_up() -> None:
    told(webhooks_report([WEBHOOK]), "ours", "by ada", "https://hooks.example.com", "retune.regression", "17", "2,345")
    document = documents.write(WEBHOOK)
    assert (document["num_pending"], document["num_dead"]) == (17, 2345)


def test_deliveries_are_reported_with_their_attempts_and_the_last_answer() -> None:
    found = Listed(items=(delivery(),), total=60, limit=25, offset=25)
    shown = announcing_report([WEBHOOK], found, DeliveryState.PENDING)
    told(shown, "dl-1", "nightly: regression", "pending", "next 2025-10-09 09:53 UTC", "2", "HTTP 500", "60 deliveries")
    page = Html().sections(shown)
    assert "/webhooks?state=pending&amp;number=1" in page
    assert "/webhooks?state=pending&amp;number=3" in page
    assert 'aria-current="true"' in page


def test_a_delivery_that_was_given_up_can_be_sent_again_by_who_may() -> None:
    found = Listed(items=(delivery(state=DeliveryState.DEAD), delivery(id="dl-2")), total=2, limit=25)
    shown = announcing_report([WEBHOOK], found, has_buttons=True)
    page = Html().sections(shown)
    assert page.count("send-again") == page.count('action="/webhooks/deliveries/dl-1/send-again"') == 1
    assert "Send again" not in "".join(surfaces(shown)[::2])
    told(announcing_report([WEBHOOK], found), "autotuner webhook send-again ID")


def test_without_a_webhook_it_says_how_to_add_one() -> None:
    told(webhooks_report([], "http://here"), "autotuner webhook add ours", "--server http://here")


# ---------------------------------------------------------------- access
def test_tokens_are_reported_with_their_quota_and_whether_they_count() -> None:
    quota = Quota(unfinished_sweeps=2, accelerator_hours_per_day=1064.5, requests_per_minute=300)
    token = Token(id="k3v7q2mxn5", name="ada", scope=Scope.RUN, quota=quota, created_at=AT, created_by="root")
    gone = replace(token, id="z9", name="ci", quota=Quota(), revoked_at=AT + 60)
    shown = tokens_report([token, gone], now=AT + 120)
    limits = ("2 sweeps at once", "1,064.5 accelerator-hours a day", "300 requests a minute")
    told(shown, "ada", "k3v7q2mxn5", "by root", "valid", *limits, "revoked", "2025-10-09 08:54 UTC", "never")
    assert documents.write(token)["quota"]["accelerator_hours_per_day"] == 1064.5
    page = Html().sections(shown)
    assert page.count("Revoke the token") == page.count('action="/tokens/k3v7q2mxn5/revoke"') == 1
    assert "Revoke" not in "".join(surfaces(shown)[::2])


def test_the_audit_log_is_told_to_the_second_and_says_what_was_refused() -> None:
    entry = AuditEntry(
        at=AT + 7,
        caller="ada & co",
        token_id="k3",
        action="cancel_run",
        subject="/api/v1/runs/sw-1/cancel",
        status=403,
        request_id="r",
        address="10.0.0.3",
    )
    shown = audit_report(Listed(items=(entry, replace(entry, caller="")), total=99, limit=2, offset=2))
    told(shown, "2025-10-09 08:53:27 UTC", "token k3", "cancel run", "/sw-1/cancel", "403", "refused", "99 entries")
    told(shown, "not known", "10.0.0.3")
    assert "/audit?caller=ada+%26+co" in Html().sections(shown)


# ---------------------------------------------------------------- engines, workers, trainers
def test_engines_and_workers_are_reported_with_what_they_run() -> None:
    slurm = EngineStanding(
        name="lab", kind="slurm", answers=False, answer="slurm 24 lacks gpu", queues=("gpu",), max_parallel_trials=7
    )
    worker = WorkerStanding(
        name="node1:7", version="1.4.0", started_at=AT, seen_at=AT + 60, is_alive=True, sweep_id="sw-1"
    )
    shown = running_report([slurm], {"lab": ["h100s"]}, [worker, replace(worker, sweep_id=None, is_alive=False)])
    told(shown, "lab", "slurm", "silent", "slurm 24 lacks gpu", "gpu", "7", "h100s")
    told(shown, "node1:7", "running", "sw-1", "2025-10-09 08:54 UTC", "1.4.0", "silent")
    told(engines_report([replace(slurm, max_parallel_trials=None, answers=True)]), "answers", "as many as fit")
    told(running_report([slurm], {"lab": []}, []), "autotuner worker")


def test_trainers_are_reported_with_what_a_sweep_may_search_with_each() -> None:
    loop = offered_by(
        Trainer(
            name="loop",
            format=ExportFormat.ARGUMENTS,
            options=("micro_batch_size",),
            fixed={"precision": "fp32"},
            values={"micro_batch_size": (2, 4)},
        )
    )
    told(trainers_report([loop]), "loop", "arguments", "torch", "micro batch size", "2, 4", "precision fp32")
    told(trainers_report([]), "AUTOTUNER_TRAINERS")


# ---------------------------------------------------------------- machine
def test_a_profile_has_the_same_figures_on_every_surface() -> None:
    one = profile()
    for text in surfaces(profiles_report([one])):
        for figure in (number(one.fp32_flop_per_s, "FLOP/s"), number(one.launch_s, "s"), one.device, "Messages"):
            assert figure in text
    assert "Messages" not in surfaces(profiles_report([one], details=False))[0]
    assert "`autotuner profile` measures this machine" in surfaces(profiles_report([]))[0]


def answer(rank: int, gigabytes: float) -> RankDryRun:
    held = HeldBytes(
        parameters_bytes=2e9,
        gathered_bytes=0.0,
        gradients_bytes=2e9,
        optimizer_bytes=6e9,
        activations_bytes=gigabytes * 1e9,
    )
    collectives = (CollectiveCount(kind="all_gather", num_calls=1000, num_bytes=3e9),)
    counts = OperationCounts(flop=5e15, moved_bytes=1e12, num_operations=100_000, collectives=collectives)
    return RankDryRun(rank=rank, held=held, counts=counts)


def test_every_rank_has_a_column_the_fullest_is_marked_and_what_was_left_out_is_said() -> None:
    both = DryRun(ranks=(answer(0, 20.0), answer(48, 4.0)))
    for text in surfaces(dry_run_report(both, "a job")):
        for words in ("rank 0, fullest", "rank 48", "30 GB", "5 PFLOP", "1 TB", "100,000", "1,000 x", "3 GB"):
            assert words in text
    document = documents.write(both)
    assert document["fullest_rank"] == 0
    assert document["ranks"][0]["held"]["activations_bytes"] == 20e9
    found = DryRun(
        ranks=(answer(0, 1.0),), layers_run=(4, 6), micro_batches_run=(5, 6), notes=("nothing was compiled",)
    )
    text = surfaces(dry_run_report(found, "a job"))[0]
    assert "4 and 6 layers per stage" in text
    assert "5 and 6 micro-batches" in text
    assert "Nothing was compiled." in text


# ---------------------------------------------------------------- catalog
def test_accelerators_and_models_have_the_same_figures_on_all_surfaces() -> None:
    shown = surfaces(
        catalog_report([load_accelerator("h100"), load_accelerator("v100")], [load_model("llama-3-8b")], [])
    )
    for text in shown:
        for figure in ("85.5 GB", "3.35 TB/s", "989 TFLOP/s", "1.98 PFLOP/s", "8.03B", "14,336", "–"):
            assert figure in text


def test_training_software_is_shown_with_its_versions_and_its_error() -> None:
    known = [one for one in stack_profiles() if one.name in ("typical", "megatron")]
    for text in surfaces(stacks_report(known)):
        assert f"{100 * (known[1].left_out_error or 0):.1f} %" in text
        assert "Megatron-LM; 2.2 to core 0.4" in text


def test_names_of_software_and_networks_are_shown() -> None:
    for text in surfaces(catalog_report([], [], [load_stack("megatron"), load_stack("nemo")])):
        assert "egatron, nemo" in text
    for text in surfaces(networks_report([load_preset("fat-tree-2to1")])):
        assert "32 ports down, 16 up" in text


# ---------------------------------------------------------------- cluster
NOW = 1_760_000_000.0
FOUR = replace(cpu_cluster(2), name="pair", num_nodes=4, engine="two", queue="long")
POINTS = tuple(link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2))
TAKEN = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=8, accelerator=cpu_core())
PROFILE = with_links(replace(TAKEN, cluster="pair"), POINTS, measured_at=NOW, num_nodes=4)
LINKS = ClusterLinks.of(FOUR, PROFILE)

CHECK = CheckRun(
    id="ck-1",
    kind="check",
    state=RunState.COMPLETE,
    subject="pair",
    created_by="ada",
    created_at=NOW,
    due_at=NOW,
    started_at=NOW + 1,
    finished_at=NOW + 90,
    request=ClusterCheck(cluster=FOUR, request=CheckRequest()),
    progress=CheckFindings(engine="processes").said("trial: job 17 waits", NOW + 6),
)


def test_links_and_checks_have_the_same_figures_on_all_surfaces() -> None:
    report = cluster_report(FOUR, profiled(FOUR, PROFILE).accelerator, LINKS, [CHECK])
    for text in surfaces(report):
        for figure in ("500 MB/s", "800 MB/s", "200 µs", "100 µs", "30 ms", "29.9 ms late", "1 min 29 s", "job 17"):
            assert figure in text, figure
    assert write(LINKS)["items"][1]["measured"]["latency_s"] == 200e-6
    assert write(CHECK)["progress"]["lines"] == [{"at": NOW + 6, "text": "trial: job 17 waits"}]


def test_a_list_says_what_is_measured_and_what_is_unhealthy() -> None:
    report = clusters_report(Stored.by({"pair": "ada"}, [FOUR]), {"pair": CHECK}, {"pair": LINKS})
    for text in surfaces(report):
        for words in ("by ada", "4 × 2 cpu", "queue long", "complete", "measured", "1 unhealthy"):
            assert words in text, words


def test_facts_from_files_are_reported_with_assumptions() -> None:
    reading = TopologyReading.of([read_topology(published.SLURM_TREE)], load_cluster("h100:48"))
    for text in surfaces(topology_report(reading)):
        assert "6 nodes below a switch" in text
        assert "450 GB/s" in text
        assert "all of it is assumed" in text


def test_a_topology_is_drawn_and_told_in_words() -> None:
    assert topology_section(FOUR) is None
    section = topology_section(load_cluster("a100:512@dgx-superpod"))
    assert section is not None
    for text in surfaces(Report(headline="", sections=(section,))):
        assert "32 nodes below a switch" in text
