"""Addresses of pages: the reader's choices in the query, and links to a layout of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.cluster import Cluster
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.lines import read_lengths, read_links, written_lengths
from autotuner.core.model import TransformerSpec
from autotuner.core.sweep import Sweep
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.service.build import App

# Addresses of a page that keeps what somebody chose in its query: sort, filter, columns, page.

_OF_PARTS = ("part",)
"""Query parameters that request a part of a page; links leave them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The query parameters of a page's address, with methods that write a query with some of them changed."""

    chosen: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the non-empty query parameters of a request, without parameters that ask for a part of the page."""
        given = request.query_params.multi_items()
        return cls(chosen=tuple((name, value) for name, value in given if name not in _OF_PARTS and value))

    def get(self, name: str) -> str:
        """Return the values of the query parameter of that name, joined by commas; empty if there are none."""
        return ",".join(value for key, value in self.chosen if key == name)

    def but(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return all query parameters except those of the given names.

        A form that sends the given names also needs the other parameters, as hidden fields.
        """
        return tuple((name, value) for name, value in self.chosen if name not in names)

    def with_(self, **changes: str | int | None) -> str:
        """Return the query text, which begins with ``?``, with some values replaced by the given values.

        Values that are None or empty are left out.
        """
        kept = self.but(*changes)
        changed = ((name, str(value)) for name, value in changes.items() if value not in (None, ""))
        return _query((*kept, *changed))

    @property
    def query(self) -> str:
        """The query text, which begins with ``?``, with the present values."""
        return _query(self.chosen)


def _query(items: Iterable[tuple[str, str]]) -> str:
    written = urlencode(list(items), safe=",:")
    return f"?{written}" if written else "?"


# A layout of a job as an address: what links to ``/explore``, what ``/new`` and ``/compare`` can be asked about.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")

_OF_SWEEP = "sweep:"
"""Prefix of a sweep's id in place of a name; it means the model or the cluster of this sweep."""

_LONGEST_TEXT = 1000
"""Maximum number of characters of sequence lengths in an address, since browsers and proxies cut very long
addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permalink:
    """A job and one layout of it, described by names and a few numbers, so that they fit in an address."""

    model: str
    """Name of a stored or catalog model, or ``sweep:ID`` for the model of a sweep."""
    cluster: str
    """Name of a stored cluster, an accelerator and a count, ``local``, or ``sweep:ID``."""
    seq_len: int
    global_batch_size: int
    layout: Layout | None = None
    """The layout; None: the best by prediction, if one is needed."""
    stack: str = "torch"
    """Name of the software stack for which predictions are made."""
    optimizer_state_precision: str = "fp32"
    """Precision of AdamW's moments."""
    link_health: str = ""
    """Links whose state differs from the cluster's description, separated by ``|``: ``2_3; 0.06|0_1; dead``."""
    lengths: str = ""
    """Lengths of the sequences, if they differ: ``1-128:6, 512:3``, or ``sweep:ID`` for the lengths of that sweep."""

    @classmethod
    def of_sweep(cls, sweep: Sweep, layout: Layout | None = None) -> Self:
        """Return the permalink of a sweep's job and, if it is given, of a layout of this job.

        The permalink uses the catalog name of a model or cluster if the catalog still has an equal object of that name.
        Otherwise it refers to the sweep (``sweep:ID``).
        """
        job = sweep.request.job
        return cls(
            model=job.model.name if _is_catalog_model(job.model) else f"{_OF_SWEEP}{sweep.id}",
            cluster=job.cluster.name if _is_catalog_cluster(job.cluster) else f"{_OF_SWEEP}{sweep.id}",
            seq_len=job.workload.seq_len,
            global_batch_size=job.workload.global_batch_size,
            layout=layout,
            stack=job.stack.name,
            optimizer_state_precision=job.workload.optimizer_state_precision,
            lengths=_lengths_of(job.workload.lengths, sweep),
        )

    @classmethod
    def read(cls, address: str) -> Self:
        """Return the permalink that an address or its query describes; parts that are left out come from ``DEFAULT``.

        Raises:
            InvalidInput: A number cannot be read, or a word of the layout is unknown.
        """
        query = urlsplit(address).query or address.lstrip("?")
        return cls.of_query(dict(parse_qsl(query)))

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> Self:
        """Return the permalink that query parameters describe; parts that are left out come from ``DEFAULT``."""
        words = query.get("layout", "").strip()
        return cls(
            model=query.get("model", "").strip() or DEFAULT.model,
            cluster=query.get("cluster", "").strip() or DEFAULT.cluster,
            seq_len=whole_number("seq_len", query.get("seq_len") or DEFAULT.seq_len),
            global_batch_size=whole_number(
                "global_batch_size", query.get("global_batch_size") or DEFAULT.global_batch_size
            ),
            layout=Layout.parse(words) if words else None,
            stack=query.get("stack") or DEFAULT.stack,
            optimizer_state_precision=query.get("optimizer_state_precision") or DEFAULT.optimizer_state_precision,
            link_health=query.get("link_health", "").strip(),
            lengths=query.get("lengths", "").strip(),
        )

    @property
    def asked(self) -> Mapping[str, str]:
        """The query parameters of the permalink by name, without optional parameters that have their default value."""
        said = {
            "model": self.model,
            "cluster": self.cluster,
            "seq_len": str(self.seq_len),
            "global_batch_size": str(self.global_batch_size),
        }
        for name in ("stack", "optimizer_state_precision", "link_health", "lengths"):
            if getattr(self, name) != getattr(DEFAULT, name):
                said[name] = getattr(self, name)
        if self.layout is not None:
            said["layout"] = str(self.layout)
        return said

    def to(self, path: str) -> str:
        """Return the address of the page at ``path`` with this job and layout as its query."""
        return f"{path}?{urlencode(self.asked, safe=':')}"

    @property
    def compared(self) -> str:
        """The address of the page ``/compare`` with the layout of this permalink as the first layout to compare."""
        return f"/compare?{urlencode({'of': self.to('/explore')})}"

    def with_layout(self, layout: Layout | None) -> Self:
        """Return a permalink of the same job with another layout, or without one."""
        return replace(self, layout=layout)

    def job(self, app: App) -> Job:
        """Return the job of the permalink, with predictions corrected by stored trials on the same kind of hardware.

        Raises:
            InvalidInput: A number is out of bounds; the error names the field as this class does.
            NotFound: A name is neither stored nor in the catalog.
        """
        workload = Workload(
            seq_len=self.seq_len,
            global_batch_size=self.global_batch_size,
            optimizer_state_precision=self.optimizer_state_precision,  # type: ignore[arg-type]  # it is checked there
            lengths=self._lengths(app),
        )
        model, cluster = self._model(app), self._cluster(app)
        cluster = cluster.with_link_health(read_links(self.link_health))
        job = Job(model=model, cluster=cluster, workload=workload, stack=load_stack(self.stack))
        return app.calibrated(job)

    def _lengths(self, app: App) -> LengthDistribution | None:
        if self.lengths.startswith(_OF_SWEEP):
            return app.store.get_sweep(self.lengths.removeprefix(_OF_SWEEP)).request.job.workload.lengths
        return read_lengths(self.lengths) if self.lengths else None

    def _model(self, app: App) -> TransformerSpec:
        _require_name("model", self.model)
        if self.model.startswith(_OF_SWEEP):
            return app.store.get_sweep(self.model.removeprefix(_OF_SWEEP)).request.job.model
        return app.model(self.model)

    def _cluster(self, app: App) -> Cluster:
        _require_name("cluster", self.cluster)
        if self.cluster.startswith(_OF_SWEEP):
            return app.store.get_sweep(self.cluster.removeprefix(_OF_SWEEP)).request.job.cluster
        return app.thing(Cluster, self.cluster, "cluster")


DEFAULT = Permalink(model="llama-3-70b", cluster="h100:64", seq_len=8192, global_batch_size=1024)
"""Job of a page whose address names no job: a well-known model and cluster."""


def whole_number(field: str, given: str | int) -> int:
    """Return the whole number that a text states; spaces, commas and underscores between digits are ignored.

    Args:
        field: Name of the input, for the error.
        given: The text, or a number.

    Raises:
        InvalidInput: The text is not a whole number, is negative, or is larger than ``MAX_INTEGER``.
    """
    text = str(given).strip().replace(",", "").replace("_", "").replace(" ", "")
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MAX_INTEGER)) or int(text) > MAX_INTEGER:
        digits = re.match("[0-9]{1,9}", text)
        raise InvalidInput(field, str(given)[:40], "must be a whole number", int(digits[0]) if digits else None)
    return int(text)


def _require_name(kind: str, given: str) -> None:
    """Raise an error unless the text could be a stored name, because a database cannot look up every text.

    Raises:
        NotFound: The text cannot be a name.
    """
    if not _NAME.fullmatch(given):
        raise NotFound(kind, given[:40])


def _lengths_of(lengths: LengthDistribution | None, sweep: Sweep) -> str:
    written = "" if lengths is None else written_lengths(lengths)
    return written if len(written) <= _LONGEST_TEXT else f"{_OF_SWEEP}{sweep.id}"


def _is_catalog_model(model: TransformerSpec) -> bool:
    try:
        return load_model(model.name) == model
    except AutotunerError:
        return False


def _is_catalog_cluster(cluster: Cluster) -> bool:
    try:
        return load_cluster(cluster.name) == cluster
    except AutotunerError:
        return False
