"""Tables of descriptions by name, and of checks of clusters."""

from __future__ import annotations

from sqlalchemy import Column, Named, Table, TypedColumns, text

from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.store.tables.columns import Document, Plain, metadata


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
