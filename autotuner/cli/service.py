"""The service as a server of its own."""

from __future__ import annotations

import socket
import sys

import structlog
import uvicorn
from fastapi import FastAPI

from autotuner.api.edge.connections import server_config

_GRACE_S = 3
"""Seconds that open connections get when the service stops, because a dashboard's event stream would stay open for
ever."""


def run_server(api: FastAPI, host: str, port: int) -> None:
    """Serve the API until Ctrl-C or SIGTERM. It prints the address as soon as it accepts requests."""
    config = server_config(api, host=host, port=port, log_level="warning", timeout_graceful_shutdown=_GRACE_S)
    server = _Server(config)
    try:
        server.run()
    except KeyboardInterrupt:
        return
    if not server.started:
        sys.exit(1)


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                address = f"[{host}]" if listening.family is socket.AF_INET6 else host
                structlog.get_logger(__name__).info("service.listening", at=f"http://{address}:{port}")
