"""The service on a port, until it is interrupted."""

from __future__ import annotations

import socket
import sys

import structlog
import uvicorn
from fastapi import FastAPI

from api.edge.connections import server_config

_GRACE_S = 3
"""What open connections get when a service stops; a dashboard's event stream would stay for ever."""


def run_server(api: FastAPI, host: str, port: int) -> None:
    """Serve until Ctrl-C or SIGTERM; says where as soon as requests are taken."""
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
