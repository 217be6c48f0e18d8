from __future__ import annotations

from ipaddress import ip_network

import pytest

from api.edge.caller import client_address

PROXIES = (ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.7"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["198.51.100.9, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["198.51.100.9", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
    ],
)
def test_what_a_believed_proxy_says_counts_and_what_others_say_does_not(
    peer: str, forwarded: list[str], address: str
) -> None:
    headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
    assert client_address({"type": "http", "client": (peer, 1), "headers": headers}, PROXIES) == address


def test_a_service_inside_a_command_has_no_address() -> None:
    assert client_address({"type": "http", "client": None, "headers": []}) == ""
