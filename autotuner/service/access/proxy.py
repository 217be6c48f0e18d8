"""A proxy in front of the service that says who calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.access import Caller, Scope, check_name
from autotuner.core.errors import InvalidInput, NotLetIn
from autotuner.service.networks import Network, is_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy whose word counts.

    Attributes:
        header: By which it names who calls.
        networks: Addresses that it connects from; what others say in that header is ignored.
        scope: What a caller may do that it names.
        admins: Names of those who may do everything.
    """

    header: str
    networks: tuple[Network, ...]
    scope: Scope = Scope.RUN
    admins: frozenset[str] = frozenset()

    def caller(self, peer: str, names: Sequence[str]) -> Caller | None:
        """Who calls as the proxy says; None where it did not forward this, or named nobody.

        Raises:
            NotLetIn: It names several, so that one of them came from the caller; or a name that nobody can have.
        """
        if not names or not is_within(peer, self.networks):
            return None
        if len(names) > 1:
            raise NotLetIn(f"the proxy sent {self.header} {len(names)} times; it must replace what callers send")
        return self._named(names[0].strip())

    def _named(self, name: str) -> Caller | None:
        if not name:
            return None
        try:
            check_name(name)
        except InvalidInput as error:
            raise NotLetIn(f"the proxy named a caller as nobody can be called: {error}") from error
        return Caller(name=name, scope=Scope.ADMIN if name in self.admins else self.scope)
