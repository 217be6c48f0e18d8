"""Tokens as an operator hands them out and takes them back, and whether a service may start with those there are."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from autotuner.core.access import Quota, Scope, Token, check_name
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.runs.clock import Clock
from autotuner.service.access.secret import Digests, new_secret, new_token_id, read_token, token_text

if TYPE_CHECKING:
    from autotuner.store.access import AccessStore

FIRST_ADMIN = "admin"
"""Name of the caller whose token the operator laid beside the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Who may call, by what they show."""

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
        """Store a new token; its text beside it is kept nowhere and cannot be shown again.

        Raises:
            InvalidInput: Nobody can have that name, or it would be expired at once.
        """
        check_name(name)
        now = self.clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("expires_at", expires_at, "must lie in the future, in epoch seconds")
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
        """By name, then newest first; those that do not count any more too."""
        return self.store.list_tokens()

    def revoke(self, token_id: str) -> Token:
        """Take a token back, with the sessions that it opened, from the next request on."""
        return self.store.revoke_token(token_id, now=self.clock.now())

    def install(self, text: str) -> Token:
        """Store a token that an operator made, for an admin, unless it is stored; one that was taken back stays so.

        Raises:
            InvalidInput: The text is none, or a token with that id is stored with another secret; it is not quoted.
        """
        found = read_token(text)
        if found is None:
            rule = "must hold at_, an id of a-z and 0-9, _ and at least 32 random characters of A-Z a-z 0-9 - _"
            raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", "…", rule)
        token_id, secret = found
        try:
            stored, digest = self.store.get_token(token_id)
        except NotFound:
            stored, digest = self._install(token_id, secret)
        if not self.digests.is_of(secret, digest):
            rule = "is stored with another secret; give the new one an id of its own"
            raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", f"at_{token_id}_…", rule)
        return stored

    def _install(self, token_id: str, secret: str) -> tuple[Token, str]:
        token = Token(id=token_id, name=FIRST_ADMIN, scope=Scope.ADMIN, created_at=self.clock.now())
        with suppress(Conflict):  # another service that starts at this moment did the same
            self.store.add_token(token, self.digests.of(secret))
        return self.store.get_token(token_id)

    def has_admin(self) -> bool:
        """Whether a token counts that may do everything."""
        now = self.clock.now()
        return any(token.scope is Scope.ADMIN and token.is_valid(now) for token in self.all())


def check_alone(host: str) -> None:
    """Return if only this machine reaches a service that asks nobody who they are.

    Raises:
        InvalidInput: It would listen on an address that other machines reach.
    """
    if not _is_loopback(host):
        rule = (
            "is reached by other machines, and AUTOTUNER_LOGIN=none lets everybody in: set AUTOTUNER_LOGIN=tokens "
            "after `autotuner token add NAME --scope admin`, or AUTOTUNER_LOGIN=proxy behind a proxy with a login"
        )
        raise InvalidInput("host", host, rule, "127.0.0.1")


def install_token_file(tokens: Tokens, path: Path) -> None:
    """Store the token that an operator laid into a file, as a container's secret; its name and its text stay there.

    Raises:
        InvalidInput: The file cannot be read or holds no token.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        rule = f"must be a file that can be read and holds a token ({type(error).__name__})"
        raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", str(path), rule) from None
    tokens.install(text)


def check_lets_an_admin_in(tokens: Tokens) -> None:
    """Return if a token is stored that may do everything.

    Raises:
        InvalidInput: None is that counts.
    """
    if not tokens.has_admin():
        rule = (
            "lets nobody in: no token for an admin is stored that counts. Run `autotuner token add NAME --scope admin` "
            "on this database, or name a file with one by AUTOTUNER_ADMIN_TOKEN_FILE"
        )
        raise InvalidInput("AUTOTUNER_LOGIN", "tokens", rule)


def _is_loopback(host: str) -> bool:
    """Whether every address that the name has is this machine's own; the empty name is all addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        found = []
    return bool(found) and all(ip_address(address[0]).is_loopback for *_, address in found)
