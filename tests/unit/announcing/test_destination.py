from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotuner.announcing.destination import Refused, check_url, destination, origin, system_resolver
from autotuner.core.errors import InvalidInput
from autotuner.networks import read_networks

HOME = read_networks("127.0.0.0/8, ::1", "AUTOTUNER_WEBHOOK_ALLOW")
SPELLINGS = (
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "127。0。0。1"),
    *("localhost", "LOCALHOST", "[::1]", "[::ffff:7f00:1]"),
)


@pytest.mark.parametrize("url", ["https://hooks.example.com/a?b=c", "https://[2606:4700::1]:8443/", "https://8.8.8.8"])
def test_a_url_of_the_public_internet_is_taken(url: str) -> None:
    check_url(url, ())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hooks.example.com", "must be a URL"),
        ("ftp://hooks.example.com", "must be a URL of https"),
        ("file:///etc/passwd", "must be a URL of https"),
        ("https://", "must be a URL of https"),
        ("https://a:b@hooks.example.com", "no user and no password"),
        ("http://hooks.example.com", "must begin with https"),
        ("https://127.0.0.1/", "loopback"),
        ("https://[::1]/", "loopback"),
        ("https://169.254.169.254/latest/meta-data", "link-local"),
        ("https://hooks.example.com:port/", "must be a URL"),
        ("https://hooks.example.com:65536/", "must have a port from 1 to 65535; nearest legal value: 443"),
        ("https://hooks.example.com:0/", "must have a port from 1 to 65535"),
        ("https://hooks.example.com:-1/", "must have a port from 1 to 65535"),
        ("https://xn--0.1/", "must be a URL"),
        ("https://[::ffff%00\xff:127.0.0.1]/", "must be a URL"),
        ("https://hooks.example.com/" + "x" * 2000, "at most 2000 characters"),
    ],
)
def test_a_url_that_leads_nowhere_or_inside_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_url(url, ())


def test_without_tls_only_networks_that_the_operator_allows_are_posted_to() -> None:
    check_url("http://127.0.0.1:9000/", HOME)
    check_url("http://inside.example.com/", HOME)
    with pytest.raises(InvalidInput, match="without TLS"):
        check_url("http://8.8.8.8/", HOME)
    with pytest.raises(Refused, match="without TLS"):
        destination("http://inside.example.com/", HOME, lambda *_: ("8.8.8.8",))


@pytest.mark.parametrize("written", SPELLINGS)
def test_this_machine_is_refused_however_it_is_written(written: str) -> None:
    with pytest.raises(Refused, match="loopback"):
        destination(f"https://{written}/", (), system_resolver)


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("8.8.8.8", "10.0.0.1"), ("2606:4700::1", "::1")])
def test_one_refused_address_refuses_the_name(addresses: Sequence[str]) -> None:
    with pytest.raises(Refused, match="only the operator can allow"):
        destination("https://hooks.example.com/", (), lambda *_: addresses)


def test_a_name_without_an_address_is_refused_as_such() -> None:
    def nothing(_host: str, _port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(Refused, match=r"hooks\.example\.com has no address"):
        destination("https://hooks.example.com/", (), nothing)
    with pytest.raises(Refused, match="has no address"):
        destination("https://hooks.example.com/", (), lambda *_: ())


def test_each_address_is_kept_once_and_public_only_if_all_are() -> None:
    allowed = read_networks("10.0.0.0/8", "AUTOTUNER_WEBHOOK_ALLOW")
    found = destination("https://hooks.example.com/", allowed, lambda *_: ("8.8.8.8", "8.8.8.8", "10.0.0.1"))
    assert found.addresses == ("8.8.8.8", "10.0.0.1")
    assert not found.is_public


def test_the_port_that_is_looked_up_is_the_one_that_is_connected_to() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ("8.8.8.8",)

    for url in ("https://bücher.example/", "https://hooks.example.com:8443/"):
        destination(url, (), resolve)
    assert asked == [("xn--bcher-kva.example", 443), ("hooks.example.com", 8443)]


def test_what_is_told_of_a_url_ends_with_its_host() -> None:
    assert origin("https://hooks.slack.com/services/T0/B0/secret?key=secret") == "https://hooks.slack.com"
    assert origin("https://hooks.example.com:8443/x") == "https://hooks.example.com:8443"
