"""AccessStore: tokens, and sessions of browsers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import Session, Token


class AccessStore(Protocol):
    """Who may call; every method is one transaction, as in ``Store``."""

    # ------------------------------------------------------------------ tokens
    def add_token(self, token: Token, digest: str) -> None:
        """Store a new token with what its secret hashes to; an id that is taken raises ``Conflict``."""
        ...

    def get_token(self, token_id: str) -> tuple[Token, str]:
        """The token and its digest; ``NotFound`` without it."""
        ...

    def list_tokens(self) -> Sequence[Token]:
        """By name, then newest first; revoked ones too."""
        ...

    def revoke_token(self, token_id: str, *, now: float) -> Token:
        """Take it back, with the sessions that it opened; one that was taken back stays as it is."""
        ...

    def touch_token(self, token_id: str, *, now: float) -> None:
        """Store that it was used."""
        ...

    # ------------------------------------------------------------------ sessions
    def add_session(self, session: Session) -> None:
        """Store a new session, and forget those that expired before it was created."""
        ...

    def get_session(self, session_id: str) -> Session:
        """As it was stored; ``NotFound`` without it."""
        ...

    def remove_session(self, session_id: str) -> None:
        """Forget it; one that is not stored is no error."""
        ...
