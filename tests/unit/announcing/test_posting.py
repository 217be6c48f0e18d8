from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler

import pytest

from autotuner.core.announcement import WebhookAnswer
from autotuner.service.networks import read_networks
from autotuner.service.posting import Poster
from tests.announcements import receiver, status
from tests.unit.announcing.conftest import Certified

HOME = read_networks("127.0.0.0/8, ::1", "AUTOTUNER_WEBHOOK_ALLOW")


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


def test_where_nobody_listens_the_next_address_is_tried_or_the_answer_says_so() -> None:
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


def test_what_a_receiver_inside_says_is_not_repeated() -> None:
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
