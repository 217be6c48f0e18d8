"""Access: callers, their tokens and scopes, quotas, and the log of what they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen, MinLen

from autotuner.core.errors import InvalidInput, NotOwner, QuotaExceeded
from autotuner.core.value import Count, Positive, Topic, value

MAX_NAME = 128
"""Most characters of a caller's name."""


def check_name(name: str) -> None:
    """Check that a name can identify a caller: an account, an e-mail address or the name of a CI job.

    Raises:
        InvalidInput: The name is empty or too long, has unprintable characters, or begins or ends with a space.
    """
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        rule = f"must have 1 to {MAX_NAME} printable characters, without a space at the start or the end"
        raise InvalidInput("name", name, rule, name.strip()[:MAX_NAME].strip() or None)


class Scope(StrEnum):
    """The scope of a caller, which decides the requests that the caller may make.

    Each scope includes the scopes before it. With ``read``, a caller may look, predict, explain and export. With
    ``run``, a caller may also use accelerators and store descriptions. With ``admin``, a caller may also see and change
    the objects of all callers.
    """

    READ = "read"  # may look, predict, explain and export
    RUN = "run"  # may also use accelerators (start, change and end runs), and store descriptions
    ADMIN = "admin"  # may also see and change everyone's objects: tokens, webhooks, the audit log

    def covers(self, needed: Scope) -> bool:
        """Return True if this scope is the needed scope or includes it."""
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(needed)


@value
class Quota:
    """The limits of one caller on sweeps, accelerator-hours and requests. A limit that is None does not apply."""

    unfinished_sweeps: Count | None = None
    """Most sweeps of the caller that may wait, run or be paused at once."""
    accelerator_hours_per_day: Positive | None = None
    """Most accelerator-hours of the caller's sweeps over the last 24 hours, including the hours that unfinished sweeps
    may still use."""
    requests_per_minute: Count | None = None
    """Most requests of the caller in any minute, to one process of the service."""

    @property
    def is_limiting_sweeps(self) -> bool:
        """True if the quota limits unfinished sweeps or accelerator-hours, so that each new sweep has to be checked."""
        return self.unfinished_sweeps is not None or self.accelerator_hours_per_day is not None


@value
class Usage:
    """The sweeps and accelerator-hours that a caller uses now, to compare with the caller's quota."""

    unfinished_sweeps: int
    """Sweeps that wait, run or are paused."""
    accelerator_hours: float
    """Accelerator-hours of trials and convergence gates over the last 24 hours, including those that still run."""
    promised_hours: float | None
    """Accelerator-hours that unfinished sweeps may still use by their budgets; None if any unfinished sweep has no such
    budget."""


DAY_S = 24 * 3600.0
"""Length of a quota's day: the last 24 hours, at any time."""

_LEAST_HOURS = 1e-6
"""Hours below this count as none left, because sums of hours have rounding errors."""

FreesIn = Callable[[float], float | None]


def require_room_for_sweep(quota: Quota, usage: Usage) -> None:
    """Check that the quota allows the caller one more unfinished sweep.

    Raises:
        QuotaExceeded: The caller has as many unfinished sweeps as the quota allows.
    """
    most = quota.unfinished_sweeps
    if most is not None and usage.unfinished_sweeps >= most:
        raise QuotaExceeded(
            f"you have {usage.unfinished_sweeps} unfinished sweeps, and your quota allows at most "
            f"{most}: wait until one ends, or cancel one"
        )


def hours_allowed(quota: Quota, usage: Usage, asked: float | None, *, frees_in_s: FreesIn) -> float | None:
    """Return the accelerator-hours that a new sweep may use; None means no limit.

    The sum of three numbers must stay within the daily quota: the hours used in the last 24 hours, the hours that
    unfinished sweeps may still use, and the hours of the new sweep. A new sweep without a budget of hours gets all
    hours that are left.

    Args:
        quota: Quota of the caller.
        usage: Present usage of the caller.
        asked: Accelerator-hours in the budget of the new sweep; None: the budget does not limit them.
        frees_in_s: Function that returns the seconds until a given number of further hours is free, because earlier
            usage is then older than a day. It returns None if hours become free only when a sweep ends.

    Raises:
        InvalidInput: The budget exceeds the whole quota of a day.
        QuotaExceeded: The budget exceeds the hours that are left now.
    """
    most = quota.accelerator_hours_per_day
    if most is None:
        return asked
    if asked is not None and asked > most:
        rule = f"must be at most {most:g}, the accelerator-hours that your quota allows in 24 hours"
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
            "one of your unfinished sweeps has no limit of accelerator-hours, so your quota has no "
            "hours for another sweep: wait until that sweep ends, or cancel it"
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
        f"your quota allows {most:g} accelerator-hours in 24 hours: {usage.accelerator_hours:.3g} "
        f"were used in the last 24 hours, {_promised(usage):.3g} more are reserved for unfinished "
        f"sweeps, {max(left, 0.0):.3g} are left{asks}; {when}"
    )


@value
class Caller:
    """The caller of a request, identified by a token, a session or a proxy, with scope and quota."""

    name: str
    """Name of the caller, who owns everything that the caller makes; empty if the service has no login."""
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    token_id: str | None = None
    """Id of the token that the caller sent; None if the caller sent none."""

    def may_change(self, created_by: str) -> bool:
        """Return True if the caller may change an object that the caller named ``created_by`` made.

        An admin may change every object. Another caller needs the scope ``run`` and may change only objects of its own.
        """
        return self.scope.covers(Scope.ADMIN) or (
            self.scope.covers(Scope.RUN) and bool(self.name) and self.name == created_by
        )

    def require_own(self, kind: str, key: str, created_by: str) -> None:
        """Check that the caller may change an object, and raise an error otherwise.

        Args:
            kind: Noun for the object in the error message: sweep, cluster.
            key: Id or name of the object.
            created_by: Name of the caller who made the object.

        Raises:
            NotOwner: Somebody else made the object and the caller is not an admin, or the caller lacks the scope
                ``run``.
        """
        if not self.may_change(created_by):
            raise NotOwner(kind, key, created_by)


NOBODY_ASKED = Caller(name="", scope=Scope.ADMIN)
"""The caller of every request to a service without a login."""


@value
class Token:
    """A token as it is stored and shown, without its secret."""

    id: str
    """Id of the token. The token's text begins with it, so that only one row is read to check a token."""
    name: str
    """Name of the person or program that holds the token. A name may have several tokens and owns what they make."""
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    created_at: float
    created_by: str = ""
    """Name of the caller who made the token."""
    expires_at: float | None = None
    """Time when the token expires, in epoch seconds; None: never."""
    revoked_at: float | None = None
    """Time when the token was revoked, in epoch seconds; None: it was not revoked."""
    last_used_at: float | None = None
    """Time when the token was last used, in epoch seconds, to the minute."""

    def is_valid(self, now: float) -> bool:
        """Return True if the token is neither revoked nor expired at the time ``now``, in epoch seconds."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@value
class TokenCreate:
    """A request for a new token. A person or a program sends the token with each request to identify itself."""

    name: Annotated[str, MinLen(1), MaxLen(MAX_NAME)]
    """Name of the person or program that uses it; a name may have several tokens, and owns what they make."""
    scope: Scope = Scope.RUN
    """Scope of the token. Each scope includes those before it: `read`, `run`, `admin`."""
    quota: Annotated[Quota, Topic("Limits")] = field(default_factory=Quota)
    """Limits of the token's holder; left out, no limits."""
    expires_at: float | None = None
    """Time when the token expires, in epoch seconds; left out, it never expires."""


@value
class TokenCreated:
    """A new token together with its secret text, which is shown only this once."""

    token: Token
    text: str
    """The token itself. Its holder sends `Authorization: Bearer` and this text. It is not stored and
    not shown again."""


@value
class CallerUsage:
    """The caller who sends a request: name, scope, limits and present usage."""

    name: str
    """Your name. You own what you make. Empty if the service has no login."""
    scope: Scope
    """Your scope."""
    quota: Quota
    token_id: str | None
    """Id of the token that you logged in with; null if a proxy logged you in, or if the service has no login."""
    usage: Usage
    """Your usage now; accelerator-hours are those of the last 24 hours."""


@value
class Session:
    """A login of a browser, made with a token. It ends at the latest when the token expires or is revoked."""

    id: str
    """Digest of the cookie's secret."""
    token_id: str
    created_at: float
    expires_at: float


@value
class AuditEntry:
    """A record of one request that changed something, or that was refused because of its caller."""

    at: float
    """Time of the request, in epoch seconds."""
    caller: str
    """Name of the caller; empty if the service has no login, or if the caller could not be identified."""
    token_id: str | None
    """Id of the token that the caller sent."""
    action: str
    """Operation of the REST API, such as ``cancel_run``; the HTTP method if the request was refused before an operation
    was found."""
    subject: str
    """Path that the request was for, such as ``/api/v1/runs/sw-k3v7q2mxn5/cancel``."""
    status: int
    """HTTP status of the answer."""
    request_id: str
    """Id of the request, as in the log and in the answer's ``X-Request-ID``."""
    address: str
    """Network address of the caller."""
