"""Whether a service may start: nobody is let in by accident, and somebody can be."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path

from autotuner.core.errors import InvalidInput
from autotuner.service.access.tokens import Tokens


def check_alone(host: str) -> None:
    """Return if only this machine reaches a service that asks nobody who they are.

    Raises:
        InvalidInput: It would listen on an address that other machines reach.
    """
    if not _is_loopback(host):
        rule = (
            "is reached by other machines, and AUTOTUNER_LOGIN=none lets everybody in: set AUTOTUNER_LOGIN=tokens "
            "after `autotuner token add NAME --scope admin`, or AUTOTUNER_LOGIN=proxy behind a proxy with a login"
        )
        raise InvalidInput("host", host, rule, "127.0.0.1")


def install_token_file(tokens: Tokens, path: Path) -> None:
    """Store the token that an operator laid into a file, as a container's secret; its name and its text stay there.

    Raises:
        InvalidInput: The file cannot be read or holds no token.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        rule = f"must be a file that can be read and holds a token ({type(error).__name__})"
        raise InvalidInput("AUTOTUNER_ADMIN_TOKEN_FILE", str(path), rule) from None
    tokens.install(text)


def check_lets_an_admin_in(tokens: Tokens) -> None:
    """Return if a token is stored that may do everything.

    Raises:
        InvalidInput: None is that counts.
    """
    if not tokens.has_admin():
        rule = (
            "lets nobody in: no token for an admin is stored that counts. Run `autotuner token add NAME --scope admin` "
            "on this database, or name a file with one by AUTOTUNER_ADMIN_TOKEN_FILE"
        )
        raise InvalidInput("AUTOTUNER_LOGIN", "tokens", rule)


def _is_loopback(host: str) -> bool:
    """Whether every address that the name has is this machine's own; the empty name is all addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        found = []
    return bool(found) and all(ip_address(address[0]).is_loopback for *_, address in found)
