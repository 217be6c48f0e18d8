"""Access: callers, their tokens and scopes, quotas, and the log of what they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen, MinLen

from autotuner.core.errors import InvalidInput, NotYours, QuotaExceeded
from autotuner.core.value import Count, Positive, Topic, value

MAX_NAME = 128
"""Characters of a caller's name."""


def check_name(name: str) -> None:
    """Return if a caller can have that name: an account, an address, what a CI job is called.

    Raises:
        InvalidInput: It is empty or too long, does not print, or begins or ends with a space.
    """
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        rule = f"must be 1 to {MAX_NAME} characters that print, without a space at the ends"
        raise InvalidInput("name", name, rule, name.strip()[:MAX_NAME].strip() or None)


class Scope(StrEnum):
    """What a caller may do; each holds what stands before it."""

    READ = "read"  # look, predict, explain, export
    RUN = "run"  # and start, change and end what takes accelerators, and store descriptions
    ADMIN = "admin"  # and what is other people's: tokens, webhooks, the audit log

    def covers(self, needed: Scope) -> bool:
        """Whether a caller with this scope may do what needs the other."""
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(needed)


@value
class Quota:
    """How much one caller may take; None: as much as there is."""

    unfinished_sweeps: Count | None = None
    """Sweeps of the caller that wait, run or are paused, at once."""
    accelerator_hours_per_day: Positive | None = None
    """Accelerator-hours of all sweeps of the caller over the last 24 hours, with what unfinished ones may yet take."""
    requests_per_minute: Count | None = None
    """Requests in any minute, to one process of the service."""

    @property
    def is_limiting_sweeps(self) -> bool:
        """Whether a new sweep has to be held to it."""
        return self.unfinished_sweeps is not None or self.accelerator_hours_per_day is not None


@value
class Usage:
    """What a caller takes now."""

    unfinished_sweeps: int
    """That wait, run or are paused."""
    accelerator_hours: float
    """Of trials and loss gates over the last 24 hours, those that still run included."""
    promised_hours: float | None
    """That unfinished sweeps may yet take by their budgets; None where one has no such budget."""


DAY_S = 24 * 3600.0
"""The day of a quota: the last 24 hours, at any time."""

_LEAST_HOURS = 1e-6
"""Below this nothing is left: sums of hours are off by as much as rounding makes them."""

FreesIn = Callable[[float], float | None]


def require_room_for_sweep(quota: Quota, usage: Usage) -> None:
    """Return if one more sweep may wait beside those that do.

    Raises:
        QuotaExceeded: As many are unfinished as the quota has.
    """
    most = quota.unfinished_sweeps
    if most is not None and usage.unfinished_sweeps >= most:
        raise QuotaExceeded(
            f"{usage.unfinished_sweeps} of the {most} sweeps that may be unfinished at once are: "
            "wait until one ends, or cancel one"
        )


def hours_allowed(quota: Quota, usage: Usage, asked: float | None, *, frees_in_s: FreesIn) -> float | None:
    """Accelerator-hours that a new sweep may take; None: as many as it likes.

    What was used, what unfinished sweeps were promised and what this one is promised stay within the quota together. A
    sweep that asks for no number is promised all that is left.

    Args:
        quota: Of the caller.
        usage: Of the caller.
        asked: The budget that was asked for.
        frees_in_s: After how long so many hours more are free, because those that were used are a day old; None: they
            never are while nothing ends.

    Raises:
        InvalidInput: More was asked for than the quota ever has.
        QuotaExceeded: More was asked for than is left.
    """
    most = quota.accelerator_hours_per_day
    if most is None:
        return asked
    if asked is not None and asked > most:
        rule = f"must be at most the {most:g} accelerator-hours that your quota has in a day"
        raise InvalidInput("budget.accelerator_hours", asked, rule, most)
    left = most - usage.accelerator_hours - _promised(usage)
    missing = (asked or _LEAST_HOURS) - left
    if missing > _LEAST_HOURS or left < _LEAST_HOURS:
        wait_s = frees_in_s(max(missing, _LEAST_HOURS))
        raise QuotaExceeded(_too_little(most, usage, asked, left, wait_s), wait_s)
    return left if asked is None else asked


def _promised(usage: Usage) -> float:
    if usage.promised_hours is None:
        raise QuotaExceeded(
            "a sweep of yours is unfinished that has no budget of accelerator-hours, so nothing can be promised to "
            "another: wait until it ends, or cancel it"
        )
    return usage.promised_hours


def _too_little(most: float, usage: Usage, asked: float | None, left: float, wait_s: float | None) -> str:
    asks = "" if asked is None else f", and this sweep asks for {asked:.3g}"
    when = (
        "enough will be free when one of your sweeps ends"
        if wait_s is None
        else f"enough will be free in {wait_s / 3600:.1f} hours, or when a sweep ends below its budget"
    )
    return (
        f"your quota has {most:g} accelerator-hours in a day: {usage.accelerator_hours:.3g} were used in the last "
        f"24 hours, {_promised(usage):.3g} more are promised to unfinished sweeps, {max(left, 0.0):.3g} are "
        f"left{asks}; {when}"
    )


@value
class Caller:
    """Who a request comes from, as far as it was asked."""

    name: str
    """Owns what the caller makes; empty where the service asks nobody."""
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    token_id: str | None = None
    """Of the token that it showed; None: it showed none."""

    def may_change(self, created_by: str) -> bool:
        """Whether what the caller of that name made is theirs to change: by its maker, and by an admin."""
        return self.scope.covers(Scope.ADMIN) or (
            self.scope.covers(Scope.RUN) and bool(self.name) and self.name == created_by
        )

    def require_own(self, kind: str, key: str, created_by: str) -> None:
        """Return if the caller may change it.

        Args:
            kind: What it is, for people: sweep, cluster.
            key: Its id or name.
            created_by: Name of the caller who made it.

        Raises:
            NotYours: Somebody else made it, and the caller is no admin.
        """
        if not self.may_change(created_by):
            raise NotYours(kind, key, created_by)


NOBODY_ASKED = Caller(name="", scope=Scope.ADMIN)
"""Every caller of a service that has no login."""


@value
class Token:
    """A token as it is stored and shown: all but its secret."""

    id: str
    """Part of the token's text, so that one row has to be read to judge it."""
    name: str
    """Of the person or program that has it; a name may have several tokens, and owns what they make."""
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    created_at: float
    created_by: str = ""
    """Name of the caller who made it."""
    expires_at: float | None = None
    """Epoch seconds; None: never."""
    revoked_at: float | None = None
    """When it was taken back."""
    last_used_at: float | None = None
    """To the minute."""

    def is_valid(self, now: float) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@value
class TokenCreate:
    """A request for a token: the person or program that shall be let in."""

    name: Annotated[str, MinLen(1), MaxLen(MAX_NAME)]
    """Name of the person or program that uses it; a name may have several tokens, and owns what they make."""
    scope: Scope = Scope.RUN
    """What they may do; each scope includes those before it: `read`, `run`, `admin`."""
    quota: Annotated[Quota, Topic("Limits")] = field(default_factory=Quota)
    """How much they may take; left out, as much as there is."""
    expires_at: float | None = None
    """Epoch seconds; left out, never."""


@value
class TokenCreated:
    """A new token, and what to give to whom it is for."""

    token: Token
    text: str
    """What they show: `Authorization: Bearer` and this. It is kept nowhere and not shown again."""


@value
class CallerUsage:
    """The caller that the service sees in a request, with what they may do."""

    name: str
    """What you make belongs to it; empty where the service asks nobody."""
    scope: Scope
    """What you may do."""
    quota: Quota
    token_id: str | None
    """Of the token that let you in, also through a session; null: a proxy did, or nobody was asked."""
    usage: Usage
    """What you take of your quota now; of accelerator-hours, in the last 24 hours."""


@value
class Session:
    """A browser that was let in by a token; it lasts no longer than the token does."""

    id: str
    """Digest of the cookie's secret."""
    token_id: str
    created_at: float
    expires_at: float


@value
class AuditEntry:
    """One request that changed something, or was refused for who asked."""

    at: float
    """Epoch seconds."""
    caller: str
    """Name of who asked; empty where nobody was asked or could be told."""
    token_id: str | None
    """Of the token that was shown."""
    action: str
    """Operation of the REST API, such as ``cancel_run``; the method, of what was refused before."""
    subject: str
    """What it was done to: a path below the service, such as ``/api/v1/runs/sw-k3v7q2mxn5/cancel``."""
    status: int
    """HTTP status of the answer."""
    request_id: str
    """As in the log and in the answer's ``X-Request-ID``."""
    address: str
    """Where the request came from."""
