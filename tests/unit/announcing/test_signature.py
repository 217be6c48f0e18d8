from __future__ import annotations

import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from autotuner.announcing.signature import check_secret, new_secret, signed_headers
from autotuner.core.errors import InvalidInput

BODY = '{"type":"gate.failed","said":"3,4 % ± 0,5 %"}'.encode()


def test_a_receiver_that_knows_the_scheme_takes_what_we_sign() -> None:
    secret = new_secret()
    headers = signed_headers(secret, "an-1", time.time(), BODY)
    assert Webhook(secret).verify(BODY, headers)["type"] == "gate.failed"


@pytest.mark.parametrize("changed", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_whatever_is_changed_on_the_way_is_refused_by_the_receiver(changed: str) -> None:
    secret, now = new_secret(), time.time()
    headers = signed_headers(secret, "an-1", now, BODY)
    if changed in headers:
        headers[changed] = {"webhook-id": "an-2", "webhook-timestamp": str(int(now) + 1)}[changed]
    receiver = Webhook(new_secret() if changed == "secret" else secret)
    with pytest.raises(WebhookVerificationError):
        receiver.verify(BODY + (b" " if changed == "body" else b""), headers)


def test_what_was_signed_long_ago_is_refused_by_the_receiver() -> None:
    secret = new_secret()
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(BODY, signed_headers(secret, "an-1", time.time() - 3600, BODY))


def test_every_secret_is_another_and_can_be_one() -> None:
    secrets = {new_secret() for _ in range(3)}
    assert len(secrets) == 3
    for secret in secrets:
        check_secret(secret)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_short",
        "whsec_!!!!",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSé",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidInput, match="must be whsec_ and 24 to 64 bytes") as raised:
        check_secret(secret)
    assert raised.value.value == "…"
