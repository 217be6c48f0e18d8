"""The reports of the service: each surface shows the same figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core import documents
from autotuner.core.access import AuditEntry, Quota, Scope, Token
from autotuner.core.announcement import Delivery, DeliveryState, PayloadFormat, WebhookStanding
from autotuner.core.choices import ExportFormat
from autotuner.core.health import EngineStanding, WorkerStanding
from autotuner.core.listed import Listed
from autotuner.core.trial_spec import Trainer
from autotuner.report.html import Html
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
from autotuner.search.space.trainers import offered_by
from tests.announcements import AT, announcement
from tests.unit.report.surfaces import surfaces


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


def test_webhooks_are_told_with_what_waits_and_what_was_given_up() -> None:
    told(webhooks_report([WEBHOOK]), "ours", "by ada", "https://hooks.example.com", "retune.regression", "17", "2,345")
    document = documents.write(WEBHOOK)
    assert (document["num_pending"], document["num_dead"]) == (17, 2345)


def test_deliveries_are_told_with_their_attempts_and_the_last_answer() -> None:
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
def test_tokens_are_told_with_their_quota_and_whether_they_count() -> None:
    quota = Quota(unfinished_sweeps=2, accelerator_hours_per_day=1064.5, requests_per_minute=300)
    token = Token(id="k3v7q2mxn5", name="ada", scope=Scope.RUN, quota=quota, created_at=AT, created_by="root")
    gone = replace(token, id="z9", name="ci", quota=Quota(), revoked_at=AT + 60)
    shown = tokens_report([token, gone], now=AT + 120)
    limits = ("2 sweeps at once", "1,064.5 accelerator-hours a day", "300 requests a minute")
    told(shown, "ada", "k3v7q2mxn5", "by root", "valid", *limits, "taken back", "2025-10-09 08:54 UTC", "never")
    assert documents.write(token)["quota"]["accelerator_hours_per_day"] == 1064.5
    page = Html().sections(shown)
    assert page.count("Take back the token") == page.count('action="/tokens/k3v7q2mxn5/revoke"') == 1
    assert "Take back" not in "".join(surfaces(shown)[::2])


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
def test_engines_and_workers_are_told_with_what_they_run() -> None:
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


def test_trainers_are_told_with_what_a_sweep_may_search_with_each() -> None:
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
