"""Meeting: where processes of different ranks find each other, without the process group that all ranks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # not by name

_PREFIX = "pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A store that any process of the job can open by itself: it outlives whatever breaks among others.

    Attributes:
        path: Of a file that all ranks see; empty: a server at ``host`` and ``port``.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    timeout_s: float = 60.0

    @classmethod
    def beside(cls, store: Store | None, environment: Mapping[str, str]) -> Meeting:
        """Beside the file in which ranks meet, or at the address that torchrun gave to the environment."""
        if isinstance(store, FileStore):
            path: str = store.path  # type: ignore[attr-defined]  # torch's stubs do not name it
            return cls(path=f"{path}.{_PREFIX}")
        return cls(host=environment["MASTER_ADDR"], port=int(environment["MASTER_PORT"]))

    def store(self, name: str) -> Store:
        """A new connection, for whoever knows the name."""
        if self.path:
            whole: Store = FileStore(self.path, -1)
        else:
            timeout = timedelta(seconds=self.timeout_s)
            whole = TCPStore(self.host, self.port, is_master=False, timeout=timeout, wait_for_workers=False)
        return PrefixStore(f"{_PREFIX}/{name}", whole)
