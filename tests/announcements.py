"""Announcements and webhooks for tests, and a receiver that listens on a port of this machine."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from autotuner.core.announcement import Announcement, AnnouncementKind, Webhook
from autotuner.service.webhooks import new_secret
from autotuner.store.announcements import AnnouncementStore, tell
from autotuner.store.engine import writing

AT = 1_760_000_000.0


def announce(store: AnnouncementStore, announcement: Announcement) -> None:
    """Store an announcement by itself, with its deliveries."""
    with writing(store._engine) as connection:
        tell(connection, announcement)


def announcement(**changes: Any) -> Announcement:
    """A retune's regression."""
    value = Announcement(
        id="an-1",
        at=AT,
        kind=AnnouncementKind.RETUNE_REGRESSION,
        title="nightly: regression",
        text="nightly lost 7.1 % ± 0.8 % since 2026-11-20: OMP_NUM_THREADS was 2 and is 1",
        path="/retunes/nightly",
        subject_id="rr-1",
        facts={"loss": 0.071, "since": "2026-11-20"},
    )
    return replace(value, **changes)


def webhook(**changes: Any) -> Webhook:
    """One that wants everything."""
    value = Webhook(name="ours", url="https://hooks.example.com/x", secret=new_secret(), created_at=AT)
    return replace(value, **changes)


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


Reply = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, body: bytes = b"", **headers: str) -> Reply:
    """A plain answer."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return reply


@dataclass
class Receiver:
    """What listens, what it got, and what it answers: each reply once, the last from then on."""

    port: int = 0
    replies: list[Reply] = field(default_factory=lambda: [status(204)])
    received: list[Received] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)

    def next_reply(self) -> Reply:
        """The one whose turn it is."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def receiver(*replies: Reply, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """A server for the block."""
    state = Receiver(replies=list(replies) or [status(204)])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the standard library's name
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.received.append(Received(path=self.path, headers=dict(self.headers.items()), body=body))
            state.next_reply()(self)

        do_GET = do_POST  # noqa: N815  # as above: a redirect that is followed becomes a GET

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: state.server_names.append(name)
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
