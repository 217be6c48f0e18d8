"""The signature of a posted body, after the Standard Webhooks scheme: HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from autotuner.core.errors import InvalidInput

_PREFIX = "whsec_"
_NUM_BYTES = 32
_FEWEST_BYTES, _MOST_BYTES = 24, 64
"""Of a key, as the specification has it.

Source: Standard Webhooks 1.0.0, "Signature scheme", github.com/standard-webhooks/standard-webhooks.
"""


def new_secret() -> str:
    """A key that nobody can guess, as receivers take it: ``whsec_`` and base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_NUM_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Return if it can be a key.

    Raises:
        InvalidInput: It has not that form, or is too short or long; it is not quoted.
    """
    if not _FEWEST_BYTES <= len(_key(secret)) <= _MOST_BYTES:
        rule = f"must be {_PREFIX} and {_FEWEST_BYTES} to {_MOST_BYTES} bytes in base64; left out, one is made"
        raise InvalidInput("secret", "…", rule)


def signed_headers(secret: str, message_id: str, at: float, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows who posted the body, and when.

    Args:
        secret: As ``new_secret`` makes it.
        message_id: Equal each time that the message is posted, so that a receiver takes it once.
        at: When it is posted, epoch seconds; a receiver refuses what is minutes old.
        body: What is posted, byte by byte.
    """
    when = str(int(at))
    signed = b".".join((message_id.encode(), when.encode(), body))
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": when,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    """The bytes of a key; none where it has not the form."""
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True) if secret.startswith(_PREFIX) else b""
    except ValueError:  # of base64, or of text beyond ASCII
        return b""
