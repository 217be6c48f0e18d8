"""Announcements, and how they are posted."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from autotuner.core.announcement import PayloadFormat, WebhookAnswer
from autotuner.core.errors import InvalidInput
from autotuner.runs.delivery import DELAYS_S
from autotuner.service.networks import read_networks
from autotuner.service.posting import (
    Poster,
    Refused,
    check_url,
    destination,
    is_allowed,
    origin,
    refusal,
    system_resolver,
)
from autotuner.service.webhooks import check_secret, new_secret, payload, signed_headers
from tests.announcements import announcement, receiver, status
from tests.cases import each


# ---------------------------------------------------------------- conftest
@dataclass(frozen=True)
class Certified:
    """A receiver's certificate for ``hooks.example.com``, and who trusts its issuer."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    folder = tmp_path_factory.mktemp("certificates")
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("hooks.example.com"), x509.IPAddress(ip_address("127.0.0.2"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = _write(folder / "certificate.pem", certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = _write(folder / "key.pem", key.private_bytes(*form))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, private)
    return Certified(server, ssl.create_default_context(cafile=str(chain)))


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# ---------------------------------------------------------------- destination
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
        ("ftp://hooks.example.com", "must be a URL that begins with https"),
        ("file:///etc/passwd", "must be a URL that begins with https"),
        ("https://", "must be a URL that begins with https"),
        ("https://a:b@hooks.example.com", "must not contain a user name or a password"),
        ("http://hooks.example.com", "must begin with https"),
        ("https://127.0.0.1/", "loopback"),
        ("https://[::1]/", "loopback"),
        ("https://169.254.169.254/latest/meta-data", "link-local"),
        ("https://hooks.example.com:port/", "must be a URL"),
        ("https://hooks.example.com:65536/", "must have a port from 1 to 65535, or no port, which means 443"),
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


def test_a_name_is_refused_with_one_address_that_is_or_with_none() -> None:
    def nothing(_host: str, _port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(Refused, match=r"the host hooks\.example\.com has no address \(.*\); check its name"):
        destination("https://hooks.example.com/", (), nothing)
    with pytest.raises(Refused, match="has no address"):
        destination("https://hooks.example.com/", (), lambda *_: ())


def test_each_address_is_kept_once_and_looked_up_by_the_port_that_is_connected_to() -> None:
    allowed = read_networks("10.0.0.0/8", "AUTOTUNER_WEBHOOK_ALLOW")
    found = destination("https://hooks.example.com/", allowed, lambda *_: ("8.8.8.8", "8.8.8.8", "10.0.0.1"))
    assert found.addresses == ("8.8.8.8", "10.0.0.1")
    assert not found.is_public
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ("8.8.8.8",)

    for url in ("https://bücher.example/", "https://hooks.example.com:8443/"):
        destination(url, (), resolve)
    assert asked == [("xn--bcher-kva.example", 443), ("hooks.example.com", 8443)]
    assert origin("https://hooks.slack.com/services/T0/B0/secret?key=secret") == "https://hooks.slack.com"
    assert origin("https://hooks.example.com:8443/x") == "https://hooks.example.com:8443"


# ---------------------------------------------------------------- networks
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


@each("address", INNER)
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
        ("168.63.129.16", "not an address of the public internet"),
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
    for text in ("10.1.0.1/16", "localhost", "10.1.0.0/33"):  # no networks
        with pytest.raises(InvalidInput, match="AUTOTUNER_WEBHOOK_ALLOW"):
            read_networks(f"127.0.0.1, {text}", "AUTOTUNER_WEBHOOK_ALLOW")


# ---------------------------------------------------------------- page
TEXT = (Path(__file__).parents[3] / "docs/how-to/send-webhooks.md").read_text()


def test_the_page_on_webhooks_names_every_delay() -> None:
    words = "10 s, 1 min, 5 min, 30 min, 2 h, 6 h and 12 h"
    assert words in TEXT
    units = {"s": 1, "min": 60, "h": 3600}
    pairs = (word.split() for word in words.replace(" and ", ", ").split(", "))
    assert tuple(int(number) * units[unit] for number, unit in pairs) == DELAYS_S


# ---------------------------------------------------------------- payloads
def slack(**changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(payload(replace(announcement(), **changes), PayloadFormat.SLACK, "https://tuner"))
    return told


def test_a_program_reads_type_time_and_facts_and_slack_a_linked_title() -> None:
    told = json.loads(payload(announcement(), PayloadFormat.JSON, "https://tuner.example/"))
    assert (told["type"], told["timestamp"]) == ("retune.regression", "2025-10-09T08:53:20Z")
    assert told["data"] == {
        "id": "an-1",
        "title": "nightly: regression",
        "text": "nightly lost 7.1 % ± 0.8 % since 2026-11-20: OMP_NUM_THREADS was 2 and is 1",
        "url": "https://tuner.example/retunes/nightly",
        "path": "/retunes/nightly",
        "subject_id": "rr-1",
        "facts": {"loss": 0.071, "since": "2026-11-20"},
    }
    head, facts = slack()["blocks"]
    assert head["text"]["text"].startswith("*<https://tuner/retunes/nightly|nightly: regression>*\nnightly lost")
    assert [field["text"] for field in facts["fields"]] == ["*loss*\n0.071", "*since*\n2026-11-20"]
    # nothing is linked without an address of the service
    assert json.loads(payload(announcement(), PayloadFormat.JSON, None))["data"]["url"] is None
    assert "http" not in payload(announcement(), PayloadFormat.SLACK, None).decode()


def test_slack_gets_times_as_dates_and_shares_as_percents() -> None:
    found = {
        "due_at": 1_796_000_000.0,
        "tokens_per_s": 12_345.6,
        "mfu": 0.509,
        "change": -0.0712,
        "gain": 0.1,
        "best_measured_mfu": 0.4,
    }
    facts = [field["text"] for field in slack(facts=found)["blocks"][1]["fields"]]
    assert facts == [
        "*due at*\n2026-11-30 00:53 UTC",
        "*throughput*\n12.3 ktoken/s",
        "*MFU*\n50.9 %",
        "*change*\n−7.1 %",
        "*gain*\n+10.0 %",
        "*best measured MFU*\n40.0 %",
    ]


def test_slack_finds_no_command_in_what_somebody_called_a_thing() -> None:
    told = slack(title="<!channel> & co", text="<https://evil|here>", facts={"name": "<@U1>"})
    assert "<!" not in json.dumps(told).replace("*<https://tuner", "")
    assert "<https://evil" not in json.dumps(told)
    assert told["blocks"][1]["fields"][0]["text"] == "*name*\n&lt;@U1&gt;"


def test_slack_gets_no_more_than_it_takes() -> None:
    told = slack(text="x" * 9000, facts={f"fact_{i}": "y" * 3000 for i in range(20)})
    assert len(told["blocks"][0]["text"]["text"]) == 3000
    assert [len(field["text"]) for field in told["blocks"][1]["fields"]] == [2000] * 10
    assert len(slack(facts={})["blocks"]) == 1


# ---------------------------------------------------------------- signature
BODY = '{"type":"gate.failed","said":"3,4 % ± 0,5 %"}'.encode()


def test_a_receiver_accepts_a_signed_message_unless_it_is_old() -> None:
    secret = new_secret()
    headers = signed_headers(secret, "an-1", time.time(), BODY)
    assert Webhook(secret).verify(BODY, headers)["type"] == "gate.failed"
    secret = new_secret()
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(BODY, signed_headers(secret, "an-1", time.time() - 3600, BODY))
    secrets = {new_secret() for _ in range(3)}
    assert len(secrets) == 3
    for secret in secrets:
        check_secret(secret)


@pytest.mark.parametrize("changed", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_whatever_is_changed_on_the_way_is_refused_by_the_receiver(changed: str) -> None:
    secret, now = new_secret(), time.time()
    headers = signed_headers(secret, "an-1", now, BODY)
    if changed in headers:
        headers[changed] = {"webhook-id": "an-2", "webhook-timestamp": str(int(now) + 1)}[changed]
    receiver = Webhook(new_secret() if changed == "secret" else secret)
    with pytest.raises(WebhookVerificationError):
        receiver.verify(BODY + (b" " if changed == "body" else b""), headers)


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
def test_a_text_that_is_not_a_key_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidInput, match="must be whsec_ and 24 to 64 bytes") as raised:
        check_secret(secret)
    assert raised.value.value == "…"


# ---------------------------------------------------------------- posting
def posted(poster: Poster, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> WebhookAnswer:
    """How a post ended that nobody stopped."""
    answer = poster.post(url, body, headers or {})
    assert answer is not None
    return answer


class Names:
    """A resolver that answers with one list after the other, the last from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.num_asked = 0

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.num_asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_a_body_arrives_by_the_name_of_its_url_over_tls(certified: Certified) -> None:
    with receiver(status(200), tls=certified.server) as there:
        names = Names(["127.0.0.1"])
        poster = Poster(HOME, resolve=names, tls=certified.client)
        answer = posted(poster, f"https://hooks.example.com:{there.port}/in?a=b", b'{"a":1}', {"webhook-id": "an-1"})
    assert (answer.is_accepted, answer.detail, names.num_asked) == (True, "HTTP 200 OK", 1)
    (got,) = there.received
    assert (got.path, got.body, got.headers["webhook-id"]) == ("/in?a=b", b'{"a":1}', "an-1")
    assert got.headers["Host"] == f"hooks.example.com:{there.port}"
    assert got.headers["Content-Type"] == "application/json"
    assert there.server_names == ["hooks.example.com"]


def test_a_name_that_turns_to_another_address_is_not_asked_again(certified: Certified) -> None:
    with receiver(tls=certified.server) as there:
        names = Names(["127.0.0.1"], ["10.0.0.1"])
        poster = Poster(HOME, resolve=names, tls=certified.client)
        url = f"https://hooks.example.com:{there.port}/"
        first, second = posted(poster, url), posted(poster, url)
    assert (first.is_accepted, len(there.received), names.num_asked) == (True, 1, 2)
    assert (second.status, "10.0.0.1 is a private address" in second.detail) == (None, True)


def test_nothing_is_connected_to_an_address_that_nobody_allowed() -> None:
    with receiver() as there:
        for url in (f"http://127.0.0.1:{there.port}/", f"https://localhost:{there.port}/"):
            answer = posted(Poster(), url)
            assert answer.status is None
            assert answer.detail.startswith("not posted: ")
    assert there.received == []


def test_a_certificate_for_another_name_or_of_nobody_known_gets_no_body(certified: Certified) -> None:
    with receiver(tls=certified.server) as there:
        posters = Poster(HOME, resolve=Names(["127.0.0.1"]), tls=certified.client), Poster(HOME)
        answers = [
            posted(posters[0], f"https://other.example.com:{there.port}/"),
            posted(posters[1], f"https://127.0.0.2:{there.port}/"),
        ]
    assert there.received == []
    assert [answer.status for answer in answers] == [None, None]


def test_a_certificate_for_an_address_is_good_for_that_address(certified: Certified) -> None:
    with receiver(tls=certified.server, host="127.0.0.2") as there:
        answer = posted(Poster(HOME, tls=certified.client), f"https://127.0.0.2:{there.port}/")
    assert answer.is_accepted


def test_a_redirect_is_an_answer_and_leads_nowhere() -> None:
    with receiver() as inner, receiver(status(302, Location=f"http://127.0.0.1:{inner.port}/")) as there:
        answer = posted(Poster(HOME), f"http://127.0.0.1:{there.port}/")
    assert (answer.status, answer.is_accepted, inner.received) == (302, False, [])


def test_the_next_address_is_tried_if_nobody_listens() -> None:
    with receiver() as there:
        answer = posted(Poster(HOME, resolve=Names(["127.0.0.9", "127.0.0.1"])), f"http://x.test:{there.port}/")
    assert answer.is_accepted
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = posted(Poster(HOME), f"http://127.0.0.1:{port}/")
    assert answer.status is None
    assert answer.detail.startswith("no answer: ")


def test_a_receiver_that_answers_too_slowly_or_never_is_left() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        with_headers = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(500))
        for byte in with_headers:
            try:
                handler.wfile.write(bytes([byte]))
            except OSError:  # the other side has left
                return
            time.sleep(0.02)

    with receiver(drip) as there:
        answer = posted(Poster(HOME, limit_s=0.3), f"http://127.0.0.1:{there.port}/")
    assert (answer.status, answer.detail) == (None, "no answer within 0.3 s")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = posted(Poster(HOME, limit_s=0.2), f"http://127.0.0.1:{listener.getsockname()[1]}/")
    assert answer.detail == "no answer within 0.2 s"


def test_a_long_answer_is_not_read_to_its_end() -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            return

    with receiver(endless) as there:
        assert posted(Poster(HOME), f"http://127.0.0.1:{there.port}/").is_accepted


def test_answers_of_a_receiver_in_the_internal_network_are_not_shown() -> None:
    with receiver(status(500, b"root:x:0:0")) as there:
        answer = posted(Poster(HOME), f"http://127.0.0.1:{there.port}/")
    assert answer.detail == "HTTP 500 Internal Server Error"


@pytest.mark.parametrize(("given", "read"), [("90", 90.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-5", None)])
def test_a_receiver_may_say_when_to_come_back(given: str, read: float | None) -> None:
    with receiver(status(503, Retry_After=given)) as there:
        assert posted(Poster(HOME), f"http://127.0.0.1:{there.port}/").retry_after_s == read


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert posted(Poster(HOME), f"http://127.0.0.1:{there.port}/").is_accepted
    assert (len(proxy.received), len(there.received)) == (0, 1)
