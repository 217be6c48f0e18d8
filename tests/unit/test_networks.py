"""Networks as an operator names them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.networks import household, is_within, read_networks


def test_networks_are_named_with_commas_and_spaces() -> None:
    networks = read_networks(" 10.0.0.0/8, ::1 ,", "AUTOTUNER_PROXY_NETWORKS")
    assert [str(one) for one in networks] == ["10.0.0.0/8", "::1/128"]
    assert read_networks("", "AUTOTUNER_PROXY_NETWORKS") == ()


def test_what_is_no_network_is_told_with_a_line_of_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_networks("[" * 5_000, "AUTOTUNER_PROXY_NETWORKS")
    assert len(str(caught.value)) < 500


def test_what_is_no_network_is_refused_under_the_name_of_its_setting() -> None:
    with pytest.raises(InvalidInput, match="AUTOTUNER_PROXY_NETWORKS"):
        read_networks("10.0.0.0/8, proxy", "AUTOTUNER_PROXY_NETWORKS")


@pytest.mark.parametrize(
    ("address", "held"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("::1", False), ("", False), ("local", False)],
)
def test_an_address_is_held_by_a_network_in_whichever_clothes(address: str, held: bool) -> None:
    assert is_within(address, read_networks("10.0.0.0/8", "AUTOTUNER_PROXY_NETWORKS")) == held


def test_a_household_has_one_address_of_ipv4_and_64_bits_of_ipv6() -> None:
    assert household("192.0.2.7") == household("::ffff:192.0.2.7") == "192.0.2.7"
    assert household("2001:db8::1") == household("2001:db8::ffff:1") != household("2001:db8:0:1::1")
    assert household("testclient") == "testclient"
