"""Login: who a request comes from, by a token, a session, or the word of a proxy in front of the service."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotuner.core.access import Caller, Scope, Session, Token, check_name
from autotuner.core.errors import InvalidInput, NotFound, NotLetIn, StoreUnavailable, TooOften
from autotuner.runs.clock import Clock
from autotuner.service.access.secret import Digests, Verified, fingerprint, new_secret, read_token
from autotuner.service.networks import Network, household, is_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy whose word counts."""

    header: str
    """By which it names who calls."""
    networks: tuple[Network, ...]
    """Addresses that it connects from; what others say in that header is ignored."""
    scope: Scope = Scope.RUN
    """What a caller may do that it names."""
    admins: frozenset[str] = frozenset()
    """Names of those who may do everything."""

    def caller(self, peer: str, names: Sequence[str]) -> Caller | None:
        """Who calls as the proxy says; None where it did not forward this, or named nobody.

        Raises:
            NotLetIn: It names several, so that one of them came from the caller; or a name that nobody can have.
        """
        if not names or not is_within(peer, self.networks):
            return None
        if len(names) > 1:
            raise NotLetIn(f"the proxy sent {self.header} {len(names)} times; it must replace what callers send")
        return self._named(names[0].strip())

    def _named(self, name: str) -> Caller | None:
        if not name:
            return None
        try:
            check_name(name)
        except InvalidInput as error:
            raise NotLetIn(f"the proxy named a caller as nobody can be called: {error}") from error
        return Caller(name=name, scope=Scope.ADMIN if name in self.admins else self.scope)


_PER_MINUTE = 20


class Guesses:
    """Counts wrong tokens by address and by the token guessed at; a digest costs more to judge than to send."""

    def __init__(self) -> None:
        from limits import RateLimitItemPerMinute  # noqa: PLC0415  # takes a tenth of a second, which no command has
        from limits.storage import MemoryStorage  # noqa: PLC0415
        from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415

        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._limit = RateLimitItemPerMinute(_PER_MINUTE)

    def check(self, address: str, token_id: str) -> None:
        """Return if the address may guess once more at the token of that id; empty: at an id that no token has.

        Raises:
            TooOften: It showed too many wrong ones within a minute.
        """
        key = (household(address), token_id)
        if self._limiter.test(self._limit, *key):
            return
        wait_s = self._limiter.get_window_stats(self._limit, *key).reset_time - time.time()
        detail = f"{_PER_MINUTE} wrong tokens came from {address} within a minute; come back later"
        raise TooOften(detail, max(1, math.ceil(wait_s)))

    def count(self, address: str, token_id: str) -> None:
        """Count one more wrong guess."""
        self._limiter.hit(self._limit, household(address), token_id)


if TYPE_CHECKING:
    from autotuner.store.access import AccessStore

_SESSION_S = 12 * 3600.0
"""A browser is let in for a day's work; then its token is wanted again."""

_TOUCH_S = 60.0
"""Last use is kept to the minute, so that a request seldom writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a request shows of who sends it."""

    address: str
    """Where it comes from, through proxies that are believed."""
    peer: str = ""
    """Address of who is connected."""
    authorization: str | None = None
    """Its header of that name."""
    session: str | None = None
    """The secret of a session's cookie."""
    names: Sequence[str] = ()
    """Values of the header that a proxy names callers by; a request that it forwards has one."""


class Login:
    """Tells callers apart, one row of the store for each request and no digest of a token that was seen before."""

    def __init__(
        self, store: AccessStore, clock: Clock, *, proxy: Proxy | None = None, digests: Digests | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._proxy = proxy
        self._digests = digests or Digests()
        self._verified = Verified()
        self._guesses = Guesses()

    def caller(self, shown: Shown) -> Caller:
        """Who sends the request: by its token, else as a proxy says, else by its session.

        Raises:
            NotLetIn: It shows nothing that counts.
            TooOften: Its address showed that token with a wrong secret, or texts of no token, again and again.
        """
        text = self._token_text(shown)
        if text is not None:
            return _caller_of(self._token(text, shown.address))
        if self._proxy is not None and (caller := self._proxy.caller(shown.peer, shown.names)) is not None:
            return caller
        if shown.session is not None:
            return _caller_of(self._session_token(shown.session))
        raise NotLetIn("show a token: as Authorization: Bearer at_…, by AUTOTUNER_TOKEN for commands, or at /login")

    def judges_token(self, shown: Shown) -> bool:
        """Return whether the request is let in by a token or not at all, so that no cookie counts."""
        return self._token_text(shown) is not None

    # ------------------------------------------------------------------ sessions
    def open_session(self, text: str, address: str) -> tuple[Session, str]:
        """Let a browser in by a token; the secret beside the session is for its cookie.

        Raises:
            NotLetIn: The token does not count.
            TooOften: As ``caller`` raises it.
        """
        token, now, secret = self._token(text, address), self._clock.now(), new_secret()
        ends = now + _SESSION_S if token.expires_at is None else min(token.expires_at, now + _SESSION_S)
        session = Session(id=fingerprint(secret), token_id=token.id, created_at=now, expires_at=ends)
        self._store.add_session(session)
        return session, secret

    def close_session(self, secret: str) -> None:
        """Let the browser out; a session that is over is no error."""
        self._store.remove_session(fingerprint(secret))

    def _session_token(self, secret: str) -> Token:
        try:
            session = self._store.get_session(fingerprint(secret))
            token, _ = self._store.get_token(session.token_id)
        except NotFound:
            raise NotLetIn("this session is over; log in again at /login") from None
        now = self._clock.now()
        if session.expires_at <= now or not token.is_valid(now):
            raise NotLetIn("this session is over; log in again at /login")
        return self._used(token)

    # ------------------------------------------------------------------ tokens
    def _token_text(self, shown: Shown) -> str | None:
        text = _bearer(shown.authorization)
        is_the_proxys_own = text is not None and self._proxy is not None and read_token(text) is None
        return None if is_the_proxys_own else text

    def _token(self, text: str, address: str) -> Token:
        token, now = self._recognised(text, address), self._clock.now()
        if token.is_valid(now):
            return self._used(token)
        why = "has expired" if token.revoked_at is None else "was taken back"
        raise NotLetIn(f"the token at_{token.id}_… of {token.name} {why}")

    def _recognised(self, text: str, address: str) -> Token:
        """The token of that text, whether it still counts or not; who guesses is made to wait.

        Guesses at one token do not keep another out: an address waits for the token that it guesses at, since only
        that costs a digest, and for texts of no token, which let nobody in.
        """
        parts = read_token(text)
        found = None if parts is None else self._stored(parts[0])
        if parts is not None and found is not None and self._verified.has(text, found[1]):
            return found[0]
        guessed_at = "" if found is None else found[0].id
        self._guesses.check(address, guessed_at)
        if parts is not None and found is not None and self._digests.is_of(parts[1], found[1]):
            self._verified.add(text, found[1])
            return found[0]
        self._guesses.count(address, guessed_at)
        raise NotLetIn("this token is not known; an admin of the service gives you one")

    def _stored(self, token_id: str) -> tuple[Token, str] | None:
        try:
            return self._store.get_token(token_id)
        except NotFound:
            return None

    def _used(self, token: Token) -> Token:
        now = self._clock.now()
        if token.last_used_at is None or now - token.last_used_at >= _TOUCH_S:
            with suppress(StoreUnavailable):  # who may look may still look where nothing can be written
                self._store.touch_token(token.id, now=now)
        return token


def _bearer(authorization: str | None) -> str | None:
    """The token in a header; None where that holds something else."""
    scheme, _, text = (authorization or "").strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _caller_of(token: Token) -> Caller:
    return Caller(name=token.name, scope=token.scope, quota=token.quota, token_id=token.id)
