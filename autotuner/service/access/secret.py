"""Secrets of tokens and sessions: how they are made, written down and recognised."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections import OrderedDict

_TEXT = re.compile(r"at_([a-z0-9]{1,32})_([A-Za-z0-9_-]{32,128})")

_IN_TEXT = re.compile(r"at_([a-z0-9]{1,32})_[A-Za-z0-9_-]{16,}")

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_NUM_BYTES = 32

_MEMORY_KIB, _PASSES = 19_456, 2
"""Work of one digest.

Source: OWASP Password Storage Cheat Sheet, Argon2id: 19 MiB and 2 passes at least, for passwords that people choose.
"""

_AT_ONCE = 2
"""Digests under way, so that many wrong tokens at once take neither all memory nor all cores."""


def new_token_id() -> str:
    """Ten random base-32 characters."""
    return "".join(secrets.choice(_BASE32) for _ in range(10))


def new_secret() -> str:
    """256 random bits that nobody can guess, as text that fits into a header or a cookie."""
    return secrets.token_urlsafe(_NUM_BYTES)


def token_text(token_id: str, secret: str) -> str:
    """What is given to whom the token is for."""
    return f"at_{token_id}_{secret}"


def read_token(text: str) -> tuple[str, str] | None:
    """Id and secret of a token's text; None where it is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1], found[2])


def without_tokens(text: str) -> str:
    """The text with the secret of every token in it left out: somebody may send one where its id belongs."""
    return _IN_TEXT.sub(r"at_\1_…", text)


def fingerprint(secret: str) -> str:
    """What a random secret can be looked up by without being kept; nothing leads back to 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class Digests:
    """Argon2 digests of secrets, a few at a time."""

    def __init__(self) -> None:
        from argon2 import PasswordHasher  # noqa: PLC0415  # most commands judge no token

        self._hasher = PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1)
        self._at_once = threading.Semaphore(_AT_ONCE)

    def of(self, secret: str) -> str:
        """What is kept of the secret."""
        return self._hasher.hash(secret)

    def is_of(self, secret: str, digest: str) -> bool:
        """Whether the digest is that of the secret; takes some hundredths of a second on purpose."""
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415

        with self._at_once:
            try:
                return self._hasher.verify(digest, secret)
            except (VerificationError, InvalidHashError):
                return False


_MOST = 1024
"""Tokens that are remembered; the one that was seen longest ago is forgotten first."""


class Verified:
    """Which text of a token has which digest, by the fingerprint of the text; whether it counts is asked each time."""

    def __init__(self) -> None:
        self._digests: OrderedDict[str, str] = OrderedDict()
        self._changing = threading.Lock()

    def has(self, text: str, digest: str) -> bool:
        """Whether the digest was found to be that of the token."""
        key = fingerprint(text)
        with self._changing:
            known = self._digests.get(key)
            if known is not None:
                self._digests.move_to_end(key)
        return known == digest

    def add(self, text: str, digest: str) -> None:
        """Remember that it is."""
        with self._changing:
            self._digests[fingerprint(text)] = digest
            if len(self._digests) > _MOST:
                self._digests.popitem(last=False)
