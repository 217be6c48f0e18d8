"""The reports of the service itself: webhooks, deliveries, tokens, the audit log, engines, workers, trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from autotuner.core.access import AuditEntry, Quota, Scope, Token, TokenCreated
from autotuner.core.announcement import Delivery, DeliveryState, WebhookAnswer, WebhookCreated, WebhookStanding
from autotuner.core.health import EngineStanding, WorkerStanding
from autotuner.core.listed import Listed
from autotuner.core.trial_spec import TrainerOffer
from autotuner.report.report import (
    Block,
    Button,
    Cell,
    Cells,
    Choices,
    Code,
    Column,
    Lines,
    Link,
    Moment,
    Pager,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Strong,
    Table,
)
from autotuner.report.words import counted, moment, num_in_all, plain


# ------------------------------------------------------------------ webhooks
def webhooks_report(webhooks: Sequence[WebhookStanding], server: str = "") -> Report:
    """Return the report of all webhooks by name: which events each gets, and how many deliveries wait or were given up.

    Args:
        webhooks: The webhooks, in the order of the table.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
    """
    return Report(headline="Webhooks", sections=(_webhooks(webhooks, server),))


def announcing_report(
    webhooks: Sequence[WebhookStanding],
    found: Listed[Delivery],
    state: DeliveryState | None = None,
    server: str = "",
    *,
    has_buttons: bool = False,
) -> Report:
    """Return the report of all webhooks and of one page of their deliveries.

    Args:
        webhooks: The webhooks, in the order of the table.
        found: Deliveries of the page, newest first.
        state: State that the deliveries were filtered by; None: any.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
        has_buttons: True if the reader may send a delivery again.
    """
    feeds = (Link("JSON", "api/v1/feed.json"), ",", Link("Atom", "api/v1/feed.atom"))
    facts = ("Webhooks to which outcomes are announced.", Quiet("· also as a feed:"), *feeds)
    deliveries = [_deliveries(found, state, has_buttons=has_buttons)] if webhooks else []
    return Report(headline="Webhooks", facts=facts, sections=(_webhooks(webhooks, server), *deliveries))


def _webhooks(webhooks: Sequence[WebhookStanding], server: str) -> Section:
    columns = (
        Column("webhook", is_number=False),
        Column("posts to", is_number=False),
        Column("wants", is_number=False, may_wrap=True),
        Column("format", is_number=False),
        Column("pending"),
        Column("given up"),
    )
    table = Table(
        columns=columns,
        rows=[_cells_of(one) for one in webhooks],
        caption=f"{counted(len(webhooks), 'webhook')}, by name",
        if_empty="No webhook yet. Outcomes of retunes, performance regression gates and sweeps can be posted to a URL, "
        "signed, or to a channel of Slack:",
    )
    at = f" --server {server}" if server else ""
    add = (
        f"autotuner webhook add ours https://hooks.example.com/autotuner{at}\n"
        f"autotuner webhook add slack https://hooks.slack.com/services/… --format slack --kind retune.regression{at}"
    )
    return Section(blocks=[table] if webhooks else [table, Code(add)])


def _cells_of(one: WebhookStanding) -> tuple[Cells, ...]:
    return (
        (one.name, Quiet(f"by {one.created_by}")) if one.created_by else one.name,
        one.posts_to,
        ", ".join(one.kinds) or "everything",
        one.format.value,
        Quantity(value=one.num_pending, unit="count"),
        Quantity(value=one.num_dead, unit="count"),
    )


def webhook_created_report(created: WebhookCreated) -> Report:
    """Return the report of a new webhook with its secret, which is shown only here."""
    headline = f"{created.webhook.name} posts to {created.webhook.posts_to}; its secret, not shown again:"
    return Report(headline=headline, sections=(Section(blocks=(Code(created.secret),)),))


def webhook_removed_report(removed: WebhookStanding) -> Report:
    """Return a report that confirms that a webhook and its deliveries are removed."""
    return Report(headline=f"{removed.name} is removed, with its deliveries", sections=())


def answer_report(answer: WebhookAnswer) -> Report:
    """Return the report of the answer that a receiver gave to a test message of a webhook."""
    return Report(headline=f"{'accepted' if answer.is_accepted else 'not accepted'}: {answer.detail}", sections=())


# ------------------------------------------------------------------ deliveries
def deliveries_report(found: Listed[Delivery]) -> Report:
    """Return the report of deliveries to webhooks, newest first, each with the last HTTP answer of its receiver."""
    return Report(headline="Deliveries", sections=(Section(blocks=(_table_of(found),)),))


def delivery_report(pending: Delivery) -> Report:
    """Return a report that says that the delivery (the post of an outcome to a webhook) will be sent again."""
    headline = f"{pending.id} to {pending.webhook} is pending; a service or `autotuner worker` posts it"
    return Report(headline=headline, sections=())


def _deliveries(found: Listed[Delivery], state: DeliveryState | None, *, has_buttons: bool) -> Section:
    states = [(Link("all", "webhooks", key="state-all"), state is None)]
    for one in DeliveryState:
        words = "given up" if one is DeliveryState.DEAD else one.value
        link = Link(words, "webhooks", key=f"state-{one.value}", query={"state": one.value})
        states.append((link, one is state))
    number = found.offset // found.limit + 1
    is_last = found.offset + found.limit >= found.total
    pager = Pager.of("webhooks", number, is_last=is_last, state=state.value if state else "")
    blocks: list[Block] = [
        Choices(name="Which deliveries", links=states),
        _table_of(found, has_buttons=has_buttons),
        pager,
    ]
    return Section(title="Deliveries", blocks=blocks)


def _table_of(found: Listed[Delivery], *, has_buttons: bool = False) -> Table:
    columns = [
        Column("delivery", is_number=False),
        Column("what", is_number=False),
        Column("to", is_number=False),
        Column("state", is_number=False),
        Column("attempts"),
        Column("last answer", is_number=False, may_wrap=True),
    ]
    rows = [list(_cells_of_delivery(one)) for one in found.items]
    if has_buttons:
        columns.append(Column("", is_number=False, is_action=True))
        for row, one in zip(rows, found.items, strict=True):
            row.append("" if one.state is DeliveryState.PENDING else _send_again(one))
    is_again = not has_buttons and any(one.state is DeliveryState.DEAD for one in found.items)
    again = "; `autotuner webhook send-again ID` sends one again" if is_again else ""
    return Table(
        columns=columns,
        rows=rows,
        caption=f"{num_in_all(found.total, 'delivery', 'deliveries')}, newest first{again}",
        if_empty="None.",
    )


def _send_again(one: Delivery) -> Button:
    says = f"Send the delivery {one.id} to {one.webhook} again"
    return Button(words="Send again", path=f"webhooks/deliveries/{one.id}/send-again", says=says)


def _cells_of_delivery(one: Delivery) -> tuple[Cells, ...]:
    announcement = one.announcement
    kind, _, subject = announcement.path.strip("/").partition("/")
    due = one.next_attempt_at if one.attempts else None
    return (
        (one.id, Moment(announcement.at)),
        (Link(announcement.title, kind, subject, key=f"link-{one.id}"), Quiet(announcement.kind.value)),
        one.webhook,
        (State(one.state.value), Quiet(f"next {moment(due)}")) if due else State(one.state.value),
        Quantity(value=one.attempts, unit="count"),
        one.detail or None,
    )


# ------------------------------------------------------------------ tokens
def tokens_report(tokens: Sequence[Token], *, now: float) -> Report:
    """Return the report of all tokens by name, without their secrets; expired and revoked ones are included.

    Args:
        tokens: The tokens, in the order of the table.
        now: Present time in epoch seconds.
    """
    scopes: Sequence[Cell] = [cell for one in Scope for cell in (",", Strong(one.value))][1:]
    columns = (
        Column("name", is_number=False),
        Column("scope", is_number=False),
        Column("state", is_number=False),
        Column("last used", is_number=False),
        Column("expires", is_number=False),
        Column("quota", is_number=False, may_wrap=True),
        Column("made", is_number=False),
        Column("", is_number=False, is_action=True),
    )
    rows = [_cells_of_token(one, now) for one in tokens]
    none = "None yet. `autotuner token add NAME` makes one."
    return Report(
        headline="Tokens",
        facts=("Callers of this service. Each scope includes the scopes before it:", *scopes, "."),
        sections=(Section(title="All tokens", blocks=(Table(columns=columns, rows=rows, if_empty=none),), id="all"),),
    )


def _cells_of_token(one: Token, now: float) -> tuple[Cells, ...]:
    counts = one.is_valid(now)
    revoke = Button(words="Revoke", path=f"tokens/{one.id}/revoke", says=f"Revoke the token {one.id} of {one.name}")
    return (
        (one.name, Quiet(one.id)),
        one.scope.value,
        _state_of(one, counts=counts),
        Moment(one.last_used_at) if one.last_used_at else Quiet("never"),
        Moment(one.expires_at) if one.expires_at else Quiet("never"),
        tuple(_limits(one.quota)) or None,
        (Moment(one.created_at), Quiet(f"by {one.created_by}")) if one.created_by else Moment(one.created_at),
        revoke if counts else "",
    )


def _state_of(one: Token, *, counts: bool) -> Cells:
    if one.revoked_at:
        return (State("revoked", "cancelled"), Quiet(moment(one.revoked_at)))
    return State("valid", "complete") if counts else State("expired", "cancelled")


def _limits(quota: Quota) -> Iterator[str]:
    if quota.unfinished_sweeps is not None:
        yield f"{counted(quota.unfinished_sweeps, 'sweep')} at once"
    if quota.accelerator_hours_per_day is not None:
        yield f"{quota.accelerator_hours_per_day:,g} accelerator-hours a day"
    if quota.requests_per_minute is not None:
        yield f"{counted(quota.requests_per_minute, 'request')} a minute"


def token_created_report(created: TokenCreated) -> Report:
    """Return the report of a new token with its secret text, which is shown only here."""
    headline = f"The token of {created.token.name} has the scope {created.token.scope.value}. It is not shown again:"
    return Report(headline=headline, sections=(Section(blocks=(Code(created.text),)),))


def token_revoked_report(revoked: Token) -> Report:
    """Return a report that confirms that an API token is revoked."""
    return Report(headline=f"the token {revoked.id} of {revoked.name} is revoked", sections=())


# ------------------------------------------------------------------ the audit log
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)


def audit_report(found: Listed[AuditEntry], caller: str = "") -> Report:
    """Return the report of one page of the audit log (changes and refusals), newest first.

    Args:
        found: Entries of the page.
        caller: Caller whose entries are shown; empty: those of all callers.
    """
    columns = (
        Column("at", is_number=False),
        Column("caller", is_number=False),
        Column("did", is_number=False),
        Column("to", is_number=False, may_wrap=True),
        Column("answer"),
        Column("from", is_number=False),
    )
    table = Table(
        columns=columns,
        rows=[_cells_of_entry(one, place) for place, one in enumerate(found.items)],
        caption=f"{num_in_all(found.total, 'entry', 'entries')}, newest first",
        if_empty="Nothing was changed or refused yet. The list has every request that starts, changes or ends "
        "something, and every refused request. It does not have requests that only read or predict.",
    )
    pager = Pager.of(
        "audit",
        found.offset // found.limit + 1,
        is_last=found.offset + found.limit >= found.total,
        caller=caller,
    )
    whose = Choices(
        name="Caller",
        links=((Link("everybody", "audit"), False), (Link(caller, "audit", query={"caller": caller}), True)),
    )
    return Report(
        headline=f"Audit log of {caller}" if caller else "Audit log",
        facts=("Changes by each caller, and refused requests.",),
        sections=(Section(blocks=(whose, table, pager) if caller else (table, pager)),),
    )


def _cells_of_entry(one: AuditEntry, place: int) -> tuple[Cells, ...]:
    is_refused = one.status in _REFUSED
    who: Cell = Quiet("not known" if is_refused else "unknown caller")
    if one.caller:
        who = Link(one.caller, "audit", key=f"by-{one.request_id}-{place}", query={"caller": one.caller})
    return (
        Moment(one.at, has_seconds=True),
        (who, Quiet(f"token {one.token_id}")) if one.token_id else who,
        plain(one.action),
        one.subject,
        (str(one.status), Quiet("refused")) if is_refused else str(one.status),
        one.address or None,
    )


# ------------------------------------------------------------------ engines and workers
def engines_report(engines: Sequence[EngineStanding]) -> Report:
    """Return the report of the engines (such as Slurm) that run trials, and whether each answers now."""
    return Report(headline="Engines", sections=(Section(blocks=(_engines(engines, {}),)),))


def running_report(
    engines: Sequence[EngineStanding], clusters: Mapping[str, Sequence[str]], workers: Sequence[WorkerStanding]
) -> Report:
    """Return the report of the engines that run trials and of the workers that run sweeps.

    Args:
        engines: The engines with their present answers.
        clusters: Names of the stored clusters by the engine that runs their trials.
        workers: The workers that sent a heartbeat within a day.
    """
    facts = (
        "Engines run trials. Workers run sweeps, and ask engines to run trials. This is the present state.",
        Quiet("·"),
        Link("refresh", "engines"),
    )
    sections = (
        Section(title="Engines", blocks=(_engines(engines, clusters),)),
        Section(title="Workers", blocks=tuple(_workers(workers))),
    )
    return Report(headline="Engines and workers", facts=facts, sections=sections)


def _engines(engines: Sequence[EngineStanding], clusters: Mapping[str, Sequence[str]]) -> Table:
    columns = [
        Column("engine", is_number=False),
        Column("state", is_number=False),
        Column("description", is_number=False, may_wrap=True),
        Column("queues", is_number=False, may_wrap=True),
        Column("jobs at once"),
    ]
    rows = [list(_cells_of_engine(one)) for one in engines]
    if clusters:
        columns.append(Column("clusters", is_number=False, may_wrap=True))
        for row, one in zip(rows, engines, strict=True):
            row.append(tuple(Link(name, "clusters", name) for name in clusters[one.name]) or None)
    return Table(columns=columns, rows=rows)


def _cells_of_engine(one: EngineStanding) -> Iterator[Cells]:
    yield one.name if one.kind == one.name else (one.name, Quiet(one.kind))
    yield State("answers", "complete") if one.answers else State("silent", "failed")
    yield one.answer
    yield ", ".join(one.queues) or None
    most = one.max_parallel_trials
    yield "as many as fit" if most is None else Quantity(value=most, unit="count")


def _workers(workers: Sequence[WorkerStanding]) -> Iterator[Block]:
    if not workers:
        none = (
            "No worker has sent a heartbeat within a day, so sweeps wait. Start a worker on the machine with the "
            "devices:"
        )
        yield Lines(items=(none,), is_list=False)
        yield Code("autotuner worker")
        return
    columns = (
        Column("worker", is_number=False),
        Column("state", is_number=False),
        Column("runs", is_number=False),
        Column("last heartbeat", is_number=False),
        Column("began", is_number=False),
        Column("release", is_number=False),
    )
    yield Table(columns=columns, rows=[tuple(_cells_of_worker(one)) for one in workers])


def _cells_of_worker(one: WorkerStanding) -> Iterator[Cells]:
    yield one.name
    if not one.is_alive:
        yield State("silent", "failed")
    else:
        yield State("running") if one.sweep_id else State("waits", "complete")
    yield Link(one.sweep_id, "sweeps", one.sweep_id) if one.sweep_id else None
    yield Moment(one.seen_at)
    yield Moment(one.started_at)
    yield one.version


# ------------------------------------------------------------------ trainers
_REGISTERED = """[ours]
format = "torchtitan"
command = ["torchrun", "train.py"]"""


def trainers_report(trainers: Sequence[TrainerOffer]) -> Report:
    """Return the report of all registered trainers, with the options that a sweep may search and the fixed ones."""
    columns = (
        Column("trainer", is_number=False),
        Column("configuration format", is_number=False),
        Column("predicted as", is_number=False),
        Column("a sweep may search", is_number=False, may_wrap=True),
        Column("set by its own code", is_number=False, may_wrap=True),
    )
    table = Table(
        columns=columns,
        rows=[tuple(_cells_of_trainer(one)) for one in trainers],
        if_empty="No trainer is registered. The operator of this service registers trainers in the file that "
        "`AUTOTUNER_TRAINERS` names. A sweep can then try layouts with your own training loop.",
    )
    return Report(
        headline="Trainers",
        facts=("Trainers that run trials. A sweep that names none of them trains the built-in decoder.",),
        sections=(Section(blocks=(table,) if trainers else (table, Code(_REGISTERED))),),
    )


def _cells_of_trainer(one: TrainerOffer) -> Iterator[Cells]:
    yield one.name
    yield (one.format.value, Quiet(one.version)) if one.version else one.format.value
    yield one.stack
    known = [Quiet(f"{plain(name)}: {', '.join(map(str, values))}") for name, values in one.values.items()]
    yield (", ".join(map(plain, one.options)), *known)
    yield ", ".join(f"{plain(name)} {each}" for name, each in one.fixed.items()) or Quiet("nothing")
