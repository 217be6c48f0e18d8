"""Tables of descriptions by name, and of checks of clusters."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Named, Table, TypedColumns, text

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest, CheckState
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.store.tables.columns import Document, Plain, metadata, word


class _Models(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[TransformerSpec] = Column(Document(TransformerSpec))
    created_by: Named[str] = Column(Plain, server_default=text("''"))


models = Table("models", metadata, _Models)


class _Clusters(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[Cluster] = Column(Document(Cluster))
    created_by: Named[str] = Column(Plain, server_default=text("''"))


clusters = Table("clusters", metadata, _Clusters)


class _Profiles(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[DeviceProfile] = Column(Document(DeviceProfile))


profiles = Table("profiles", metadata, _Profiles)


class _Checks(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    cluster_name: Named[str] = Column(Plain, ForeignKey(clusters.c.name))
    cluster: Named[Cluster] = Column(Document(Cluster))
    request: Named[CheckRequest] = Column(Document(CheckRequest))
    state: Named[CheckState] = Column(word(CheckState))
    created_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    cancel_requested: Named[bool]
    owner: Named[str | None] = Column(Plain)
    lease_until: Named[float | None]
    findings: Named[CheckFindings] = Column(Document(CheckFindings))
    created_by: Named[str] = Column(Plain, server_default=text("''"))
    renewals: Named[int] = Column(server_default="0")
    lease_s: Named[float | None]


checks = Table(
    "checks",
    metadata,
    _Checks,
    Index(None, "cluster_name", "created_at", "id"),  # those of a cluster, newest first
    Index(None, "state", "created_at", "id"),  # the oldest to claim
)
