"""Access: the secrets of tokens and sessions, the operator's own token, and the caller of a request."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from autotuner.core.access import Caller, Quota, Scope, Session, Token, check_name
from autotuner.core.errors import Conflict, InvalidInput, NotFound, StoreUnavailable, TooOften, Unauthenticated
from autotuner.runs.clock import Clock
from autotuner.service.networks import Network, household, is_within

if TYPE_CHECKING:
    from autotuner.store.access import AccessStore

_TEXT = re.compile(r"at_([a-z0-9]{1,32})_([A-Za-z0-9_-]{32,128})")

_IN_TEXT = re.compile(r"at_([a-z0-9]{1,32})_[A-Za-z0-9_-]{16,}")

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_NUM_BYTES = 32

_MEMORY_KIB, _PASSES = 19_456, 2
"""Memory and number of passes of one Argon2id digest.

Source: OWASP Password Storage Cheat Sheet, Argon2id: at least 19 MiB and 2 passes for passwords that people choose."""

_AT_ONCE = 2
"""Maximum number of digests computed at once, so that many wrong tokens cannot use up the memory and the cores."""


def new_token_id() -> str:
    """Return a new id for an API token: ten random base-32 characters."""
    return "".join(secrets.choice(_BASE32) for _ in range(10))


def new_secret() -> str:
    """Return a new secret: 256 random bits, written as text that is legal in an HTTP header and in a cookie."""
    return secrets.token_urlsafe(_NUM_BYTES)


def token_text(token_id: str, secret: str) -> str:
    """Return the text of an API token, made of its id and its secret. The token's owner sends it with each request."""
    return f"at_{token_id}_{secret}"


def read_token(text: str) -> tuple[str, str] | None:
    """Return the id and the secret in the text of an API token, or None if the text is not a token."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1], found[2])


def without_tokens(text: str) -> str:
    """Return the text without the secrets of the tokens in it; the ids of the tokens stay.

    A user may send a whole token by mistake where only its id belongs.
    """
    return _IN_TEXT.sub(r"at_\1_…", text)


def fingerprint(secret: str) -> str:
    """Return the fast hash of a random secret, by which the store finds it.

    The secret has 256 random bits, so nobody can compute the secret from the hash.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class Digests:
    """Creates and checks Argon2 digests (slow hashes) of secrets. At most two secrets are checked at the same time."""

    def __init__(self) -> None:
        from argon2 import PasswordHasher  # noqa: PLC0415  # most commands judge no token

        self._hasher = PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1)
        self._at_once = threading.Semaphore(_AT_ONCE)

    def of(self, secret: str) -> str:
        """Return the digest of a secret, to store it in place of the secret."""
        return self._hasher.hash(secret)

    def is_of(self, secret: str, digest: str) -> bool:
        """Return True if the digest belongs to the secret. A check takes some hundredths of a second on purpose."""
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415

        with self._at_once:
            try:
                return self._hasher.verify(digest, secret)
            except (VerificationError, InvalidHashError):
                return False


_MOST = 1024
"""Maximum number of verified tokens that are remembered; the token that was not used for the longest time is dropped
first."""


class Verified:
    """A cache of the tokens whose secrets were checked, so that the slow check is not repeated with each request.

    It maps the fingerprint of a token's text to the token's digest. Each request still checks that the token has not
    expired and was not revoked.
    """

    def __init__(self) -> None:
        self._digests: OrderedDict[str, str] = OrderedDict()
        self._changing = threading.Lock()

    def has(self, text: str, digest: str) -> bool:
        """Return True if the secret in the token's text was already checked and fits this digest."""
        key = fingerprint(text)
        with self._changing:
            known = self._digests.get(key)
            if known is not None:
                self._digests.move_to_end(key)
        return known == digest

    def add(self, text: str, digest: str) -> None:
        """Record that the secret in the token's text was checked and fits the digest."""
        with self._changing:
            self._digests[fingerprint(text)] = digest
            if len(self._digests) > _MOST:
                self._digests.popitem(last=False)


FIRST_ADMIN = "admin"
"""Name of the caller that owns the admin token from the operator's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Creates, lists and revokes the API tokens with which callers authenticate themselves."""

    store: AccessStore
    clock: Clock
    digests: Digests = field(default_factory=Digests)

    def add(
        self,
        name: str,
        scope: Scope,
        quota: Quota = Quota(),
        *,
        expires_at: float | None = None,
        created_by: str = "",
    ) -> tuple[Token, str]:
        """Store a new API token and return it with its text. The text is not stored, so it cannot be shown again.

        ``expires_at`` is in epoch seconds; None: the token does not expire.

        Raises:
            InvalidInput: The name is not legal for a caller, or ``expires_at`` is in the past.
        """
        check_name(name)
        now = self.clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInput(
                "expires_at", expires_at, "must be a time in the future, in seconds since 1970 (Unix time)"
            )
        token = Token(
            id=new_token_id(),
            name=name,
            scope=scope,
            quota=quota,
            created_at=now,
            created_by=created_by,
            expires_at=expires_at,
        )
        secret = new_secret()
        self.store.add_token(token, self.digests.of(secret))
        return token, token_text(token.id, secret)

    def all(self) -> Sequence[Token]:
        """Return all API tokens ordered by name, including expired and revoked tokens.

        Among the tokens of one name, the newest comes first.
        """
        return self.store.list_tokens()

    def revoke(self, token_id: str) -> Token:
        """Revoke a token and the browser sessions that were opened with it.

        The next request with one of them is refused.
        """
        return self.store.revoke_token(token_id, now=self.clock.now())

    def install(self, text: str) -> Token:
        """Store an admin token with a text that the operator chose, unless it is stored already.

        A revoked token stays revoked.

        Raises:
            InvalidInput: The text is not a token, or a token with that id is stored with another secret. The error does
                not quote the text.
        """
        found = read_token(text)
        if found is None:
            rule = (
                "must hold a token: at_, an id of letters a-z and digits, _, and at least 32 random "
                "characters of A-Z a-z 0-9 - _"
            )
            raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", "…", rule)
        token_id, secret = found
        try:
            stored, digest = self.store.get_token(token_id)
        except NotFound:
            stored, digest = self._install(token_id, secret)
        if not self.digests.is_of(secret, digest):
            rule = "is already stored with another secret; give the new token another id"
            raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", f"at_{token_id}_…", rule)
        return stored

    def _install(self, token_id: str, secret: str) -> tuple[Token, str]:
        token = Token(id=token_id, name=FIRST_ADMIN, scope=Scope.ADMIN, created_at=self.clock.now())
        with suppress(Conflict):  # another service that starts at this moment did the same
            self.store.add_token(token, self.digests.of(secret))
        return self.store.get_token(token_id)

    def has_admin(self) -> bool:
        """Return True if at least one valid token has the admin scope."""
        now = self.clock.now()
        return any(token.scope is Scope.ADMIN and token.is_valid(now) for token in self.all())


def check_alone(host: str) -> None:
    """Raise an error if other machines can reach a service that has no login.

    Raises:
        InvalidInput: Other machines can reach the address ``host``, on which the service would listen.
    """
    if not _is_loopback(host):
        rule = (
            "can be reached by other machines, and AUTOTUNER_LOGIN=none lets everybody in: set "
            "AUTOTUNER_LOGIN=tokens after `autotuner token add NAME --scope admin`, or "
            "AUTOTUNER_LOGIN=proxy behind a proxy with a login"
        )
        raise InvalidInput("host", host, rule, "127.0.0.1")


def install_token_file(tokens: Tokens, path: Path) -> None:
    """Store the admin token that an operator wrote into a file, such as a container's secret. The file stays unchanged.

    Raises:
        InvalidInput: The file cannot be read or holds no token.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        rule = f"must be a file that can be read and that holds a token ({type(error).__name__})"
        raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", str(path), rule) from None
    tokens.install(text)


def check_lets_an_admin_in(tokens: Tokens) -> None:
    """Raise an error if no valid admin token is stored, because then nobody could manage the service.

    Raises:
        InvalidInput: No valid token with the admin scope is stored.
    """
    if not tokens.has_admin():
        rule = (
            "lets nobody in, because the database has no valid admin token: run `autotuner token add "
            "NAME --scope admin` on this database, or set AUTOTUNER_ADMIN_TOKEN_FILE to a file with a "
            "token"
        )
        raise InvalidInput("AUTOTUNER_LOGIN", "tokens", rule)


def _is_loopback(host: str) -> bool:
    """Return True if every address of the host name belongs to this machine; the empty name means all addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        found = []
    return bool(found) and all(ip_address(address[0]).is_loopback for *_, address in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy with its own login. The service trusts the proxy to name the caller of a request."""

    header: str
    """Header in which the proxy names the caller."""
    networks: tuple[Network, ...]
    """Addresses of the proxy; the header is ignored in requests from other addresses."""
    scope: Scope = Scope.RUN
    """Scope of the callers that the proxy names."""
    admins: frozenset[str] = frozenset()
    """Names of callers with the admin scope."""

    def caller(self, peer: str, names: Sequence[str]) -> Caller | None:
        """Return the caller that the proxy names, or None if the request did not come from the proxy or names nobody.

        ``peer`` is the address that sent the request, and ``names`` holds the values of the header in which the proxy
        names the caller.

        Raises:
            Unauthenticated: The header has several values, so one of them came from the caller; or its value is not a
                legal name.
        """
        if not names or not is_within(peer, self.networks):
            return None
        if len(names) > 1:
            raise Unauthenticated(
                f"the proxy sent the header {self.header} {len(names)} times; configure the proxy to "
                "replace the header of callers"
            )
        return self._named(names[0].strip())

    def _named(self, name: str) -> Caller | None:
        if not name:
            return None
        try:
            check_name(name)
        except InvalidInput as error:
            raise Unauthenticated(
                f"the proxy sent an invalid name of a caller ({error}); correct the configuration of the proxy"
            ) from error
        return Caller(name=name, scope=Scope.ADMIN if name in self.admins else self.scope)


_PER_MINUTE = 20


class WrongTokens:
    """Counts wrong tokens by address and by token id. After too many, tokens are refused without the slow check."""

    def __init__(self) -> None:
        from limits import RateLimitItemPerMinute  # noqa: PLC0415  # takes a tenth of a second, which no command has
        from limits.storage import MemoryStorage  # noqa: PLC0415
        from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415

        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._limit = RateLimitItemPerMinute(_PER_MINUTE)

    def check(self, address: str, token_id: str) -> None:
        """Raise an error if the address has sent too many wrong secrets for the token with this id.

        Texts that are not tokens count under the empty id.

        Raises:
            TooOften: The address sent too many wrong texts within a minute.
        """
        key = (household(address), token_id)
        if self._limiter.test(self._limit, *key):
            return
        wait_s = self._limiter.get_window_stats(self._limit, *key).reset_time - time.time()
        detail = f"{_PER_MINUTE} wrong tokens came from {address} within a minute; try again later"
        raise TooOften(detail, max(1, math.ceil(wait_s)))

    def count(self, address: str, token_id: str) -> None:
        """Record that the address has sent another wrong secret for the token with this id."""
        self._limiter.hit(self._limit, household(address), token_id)


_SESSION_S = 12 * 3600.0
"""Seconds for which a browser stays signed in: a working day. After that, it must show the token again."""

_TOUCH_S = 60.0
"""Resolution in seconds of the stored time of last use, so that few requests write to the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The credentials that a request carries, not yet checked, and the addresses from which it came."""

    address: str
    """Address of the client, as trusted proxies report it."""
    peer: str = ""
    """Address of the connected client or proxy."""
    authorization: str | None = None
    """The ``Authorization`` header."""
    session: str | None = None
    """Secret in the session cookie."""
    names: Sequence[str] = ()
    """Values of the header in which a proxy names the caller; a request from a proxy must have exactly one."""


class Login:
    """Finds out who sent a request: its caller.

    A request costs one query of the store. The slow check of a token's secret takes place only at its first request.
    """

    def __init__(
        self, store: AccessStore, clock: Clock, *, proxy: Proxy | None = None, digests: Digests | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._proxy = proxy
        self._digests = digests or Digests()
        self._verified = Verified()
        self._guesses = WrongTokens()

    def caller(self, shown: Shown) -> Caller:
        """Return the caller of the request, found by a token, else by the proxy's header, else by a browser session.

        Raises:
            Unauthenticated: The request has no valid credentials.
            TooOften: The address has sent this token with a wrong secret, or texts that are not tokens, too many times.
        """
        text = self._token_text(shown)
        if text is not None:
            return _caller_of(self._token(text, shown.address))
        if self._proxy is not None and (caller := self._proxy.caller(shown.peer, shown.names)) is not None:
            return caller
        if shown.session is not None:
            return _caller_of(self._session_token(shown.session))
        raise Unauthenticated(
            "a token is missing: send the header Authorization: Bearer at_…, set AUTOTUNER_TOKEN for "
            "commands, or log in at /login"
        )

    def judges_token(self, shown: Shown) -> bool:
        """Return True if the request carries an API token. Only the token counts then, not a session cookie."""
        return self._token_text(shown) is not None

    # ------------------------------------------------------------------ sessions
    def open_session(self, text: str, address: str) -> tuple[Session, str]:
        """Open a browser session for the owner of a token; return the session with the secret for its cookie.

        Raises:
            Unauthenticated: The token is not valid.
            TooOften: The address sent wrong tokens too many times, as in ``caller``.
        """
        token, now, secret = self._token(text, address), self._clock.now(), new_secret()
        ends = now + _SESSION_S if token.expires_at is None else min(token.expires_at, now + _SESSION_S)
        session = Session(id=fingerprint(secret), token_id=token.id, created_at=now, expires_at=ends)
        self._store.add_session(session)
        return session, secret

    def close_session(self, secret: str) -> None:
        """End the browser session with that secret. If the session has ended already, nothing happens."""
        self._store.remove_session(fingerprint(secret))

    def _session_token(self, secret: str) -> Token:
        try:
            session = self._store.get_session(fingerprint(secret))
            token, _ = self._store.get_token(session.token_id)
        except NotFound:
            raise Unauthenticated("this session has ended; log in again at /login") from None
        now = self._clock.now()
        if session.expires_at <= now or not token.is_valid(now):
            raise Unauthenticated("this session has ended; log in again at /login")
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
        why = "has expired" if token.revoked_at is None else "was revoked"
        raise Unauthenticated(f"the token at_{token.id}_… of {token.name} {why}; ask an administrator for a new one")

    def _recognised(self, text: str, address: str) -> Token:
        """Return the stored token with this text, whether it is still valid or not; callers that guess have to wait.

        Guesses at one token do not lock out other callers: they are counted by address and token, and an address waits
        only for the token that it guesses at. Texts that are no stored token are counted together, since they let
        nobody in.
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
        raise Unauthenticated("this token is not known; ask an administrator of the service for one")

    def _stored(self, token_id: str) -> tuple[Token, str] | None:
        try:
            return self._store.get_token(token_id)
        except NotFound:
            return None

    def _used(self, token: Token) -> Token:
        now = self._clock.now()
        if token.last_used_at is None or now - token.last_used_at >= _TOUCH_S:
            with suppress(StoreUnavailable):  # callers may read even if the time of use cannot be written
                self._store.touch_token(token.id, now=now)
        return token


def _bearer(authorization: str | None) -> str | None:
    """Return the bearer token in an ``Authorization`` header; None if the header holds something else."""
    scheme, _, text = (authorization or "").strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _caller_of(token: Token) -> Caller:
    return Caller(name=token.name, scope=token.scope, quota=token.quota, token_id=token.id)
