from __future__ import annotations

import pytest

from autotuner.access.secret import (
    Digests,
    fingerprint,
    new_secret,
    new_token_id,
    read_token,
    token_text,
    without_tokens,
)


def test_what_is_handed_out_is_read_back_as_id_and_secret() -> None:
    token_id, secret = new_token_id(), new_secret()
    assert read_token(token_text(token_id, secret)) == (token_id, secret)


@pytest.mark.parametrize(
    "text",
    [
        *("", "at_", "at_id_short", "bt_id_" + 32 * "x", "at_ID_" + 32 * "x", "at_id_" + 129 * "x"),
        *("at_id_" + 32 * "ß", "at_id_" + 32 * "x" + "\n", " at_id_" + 32 * "x", "at_" + 33 * "i" + "_" + 32 * "x"),
    ],
)
def test_what_has_another_form_is_no_token(text: str) -> None:
    assert read_token(text) is None


def test_a_token_that_was_sent_in_the_wrong_place_is_left_out_of_what_is_written_down() -> None:
    text = token_text("k3v7q2mxn5", new_secret())
    assert without_tokens(f"/api/v1/tokens/{text}/revoke") == "/api/v1/tokens/at_k3v7q2mxn5_…/revoke"
    assert without_tokens("/clusters/at_home") == "/clusters/at_home"


def test_no_two_secrets_are_alike_and_none_is_short() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert min(map(len, made)) >= 43


def test_a_digest_is_of_its_secret_alone_and_does_not_hold_it() -> None:
    digests, secret = Digests(), new_secret()
    digest = digests.of(secret)
    assert digest.startswith("$argon2id$")
    assert secret not in digest
    assert digests.is_of(secret, digest)
    assert not digests.is_of(new_secret(), digest)
    assert not digests.is_of(secret, "no digest")


def test_a_fingerprint_tells_secrets_apart_whatever_they_hold() -> None:
    assert fingerprint("a") != fingerprint("b")
    assert len(fingerprint("half a pair \udc80")) == 64
