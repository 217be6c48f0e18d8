from __future__ import annotations

from ipaddress import ip_address

import pytest

from autotuner.announcing.networks import is_allowed, refusal
from autotuner.core.errors import InvalidInput
from autotuner.networks import read_networks

PUBLIC = ["8.8.8.8", "140.82.121.4", "2606:4700::6810:84e5", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"]
INNER = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254"),
    *("168.63.129.16", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1"),
    *("ff02::1", "ff0e::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::127.0.0.1", "2001:db8::1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1", "3fff::1", "5f00::1", "100::1"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_public_internet_may_be_posted_to(address: str) -> None:
    assert refusal(address, ()) is None


@pytest.mark.parametrize("address", INNER)
def test_an_address_of_any_other_kind_is_refused_with_its_kind(address: str) -> None:
    assert "AUTOTUNER_WEBHOOK_ALLOW" in (refusal(address, ()) or "")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("10.0.0.1", "private"),
        ("ff02::1", "multicast"),
        ("::ffff:10.0.0.1", "private"),
        ("168.63.129.16", "no address of the public internet"),
    ],
)
def test_a_refusal_names_the_kind(address: str, kind: str) -> None:
    assert kind in (refusal(address, ()) or "")


def test_the_operator_allows_networks_and_nothing_beside_them() -> None:
    allowed = read_networks(" 10.1.0.0/16, ::1,127.0.0.1 ,", "AUTOTUNER_WEBHOOK_ALLOW")
    assert [refusal(address, allowed) for address in ("10.1.2.3", "127.0.0.1", "::1", "::ffff:10.1.2.3")] == [None] * 4
    assert refusal("10.2.0.1", allowed) is not None
    assert refusal("127.0.0.2", allowed) is not None
    assert not is_allowed(ip_address("8.8.8.8"), allowed)


@pytest.mark.parametrize("text", ["10.1.0.1/16", "localhost", "10.1.0.0/33"])
def test_a_network_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="AUTOTUNER_WEBHOOK_ALLOW"):
        read_networks(f"127.0.0.1, {text}", "AUTOTUNER_WEBHOOK_ALLOW")
