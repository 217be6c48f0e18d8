"""Experiment trackers: MLflow and Weights & Biases (W&B), which keep one run for each trial of a sweep.

Both writers have the same contract, ``Tracker``. Their packages are imported when a tracker is opened. The telemetry of
these packages is off, unless the user's environment turns it on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from autotuner.core.codec import content_key
from autotuner.core.errors import InvalidInput, StoreUnavailable
from autotuner.extras import installing

Value = str | int | float | None
"""Value of a parameter, or of a cell of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that belongs to a run, such as the ranking of a sweep."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    csv: str
    """Table as CSV text, with the names of the columns first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The data that a tracker keeps as one run: those of a trial, or those of its sweep with the ranking."""

    id: str
    """Id of the trial or of the sweep, which finds the run again."""
    sweep_id: str
    kind: Literal["trial", "sweep"]
    name: str
    params: Mapping[str, Value]
    """Values that were chosen: the layout, and the job."""
    metrics: Mapping[str, float]
    """Values that were measured or predicted, in SI units."""
    tags: Mapping[str, str]
    """Words about the result, such as ``status`` and ``failure``."""
    steps: Sequence[Mapping[str, float]] = ()
    """Metrics of each training step, in order."""
    ended: Literal["finished", "failed", "killed"] = "finished"
    started_at: float | None = None
    """Start in epoch seconds; None: it is not known."""
    finished_at: float | None = None
    """End in epoch seconds; None: it is not known."""
    tables: Sequence[Table] = ()

    @property
    def digest(self) -> str:
        """The content key (a hash) of the record. A run with the same key need not be sent again."""
        return content_key(*(getattr(self, name) for name in self.__slots__))


class TrackerUnavailable(StoreUnavailable):
    """Raised when a tracker does not answer or refuses data. The data can be sent again later."""


class Tracker(Protocol):
    """A place in MLflow or W&B that keeps the runs of one sweep."""

    place: str
    """The place of the runs, in words for people."""
    target: str
    """The place as the user named it."""

    def begin(self, sweep_id: str, about: str) -> Mapping[str, str]:
        """Make a place for the runs of a sweep, and return the digest of each record that is there, by its id.

        Args:
            sweep_id: Id of the sweep.
            about: Description of the sweep, for people.

        Raises:
            TrackerUnavailable: The tracker does not answer.
        """

    def send(self, record: Record) -> None:
        """Write a record as a run; a run of the same id is replaced.

        Raises:
            TrackerUnavailable: The tracker does not answer, or it refuses the data.
        """


# ---------------------------------------------------------------- targets
_MLFLOW, _WANDB = "mlflow", "wandb"
_NAMES = {_MLFLOW: "MLflow", _WANDB: "Weights & Biases"}

_SERVERS = ("http", "https", "databricks", "databricks-uc")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_PROJECT = re.compile(r"[^/\\#?%:]{1,128}")
"""Characters of a project's name, as W&B allows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place that a user named for the runs of a sweep: an MLflow store or server, or a W&B project."""

    tracker: Literal["mlflow", "wandb"]
    address: str
    """URI of MLflow, or the project of W&B, which may follow its entity and a slash."""

    def __str__(self) -> str:
        return f"{self.tracker}:{self.address}"

    @classmethod
    def read(cls, text: str, field: str) -> Target:
        """Return the target that a text names, after a check that the package of its tracker is installed.

        Args:
            text: ``mlflow:URI`` or ``wandb:PROJECT``.
            field: Name of the option or argument that has the text, for the error message.

        Raises:
            InvalidInput: The text names no target.
            ModuleNotFoundError: The extra of the tracker is not installed.

        Example:
            >>> str(Target.read("wandb:team/layouts", "--to"))
            'wandb:team/layouts'
        """
        kind, _, address = text.strip().partition(":")
        if kind == _MLFLOW:
            _require_uri(text, address, field)
        elif kind == _WANDB:
            _require_project(text, address, field)
        else:
            raise InvalidInput(field, text, "must be mlflow:URI or wandb:PROJECT", _nearest(text))
        spec = find_spec(kind)
        if spec is None or spec.origin is None:  # a folder of this name, as W&B makes one, is no package
            raise ModuleNotFoundError(f"{_NAMES[kind]} is not installed: run {installing(kind)}", name=kind)
        return cls(tracker="mlflow" if kind == _MLFLOW else "wandb", address=address)

    def open(self) -> Tracker:
        """Return the tracker, with its package loaded, which takes seconds. It sends nothing yet."""
        return MLflowRuns(self) if self.tracker == _MLFLOW else WandbRuns(self)


def _nearest(text: str) -> str:
    scheme = text.partition(":")[0]
    if scheme in (*_SERVERS, *_DATABASES):
        return f"mlflow:{text}"
    near = get_close_matches(scheme.lower(), _NAMES, 1, cutoff=0.0)[0] if scheme else _MLFLOW
    rest = text.partition(":")[2]
    return f"{near}:{rest}" if rest else f"{near}:{'sqlite:///mlflow.db' if near == _MLFLOW else 'autotuner'}"


def _require_uri(text: str, uri: str, field: str) -> None:
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme in (*_SERVERS, *_DATABASES) and (scheme == "databricks" or "://" in uri):
        return
    rule = (
        "must name a server (http://…, https://…, databricks) or a database (sqlite, postgresql, mysql, mssql) after "
        "mlflow:"
    )
    name = re.sub(r"^\w*:?/*", "", uri) if ":" in uri else uri
    near = f"https://{name}" if scheme in _SERVERS else f"sqlite:///{name or 'mlflow.db'}"
    raise InvalidInput(field, text, rule, f"mlflow:{near}")


def _require_project(text: str, path: str, field: str) -> None:
    parts = path.split("/")
    if len(parts) <= 2 and all(_PROJECT.fullmatch(part) for part in parts):
        return
    rule = (
        "must name a project, or an entity, a slash and a project, after wandb:, each of at most 128 characters "
        "without / \\ # ? % :"
    )
    kept = [re.sub(r"[\\#?%:]+", "-", part)[:128] for part in parts if part]
    raise InvalidInput(field, text, rule, f"wandb:{'/'.join(kept[:2]) or 'autotuner'}")


@contextmanager
def _answering(place: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the errors of a tracker's package into ``TrackerUnavailable``.

    If the first cause is an error of the operating system, the message has this cause alone, since the errors that
    follow from it repeat the address with its password.
    """
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except caught as error:
        cause: BaseException = error
        while before := cause.__cause__ or cause.__context__:
            cause = before
        detail = str(cause if isinstance(cause, OSError) else error).strip() or type(error).__name__
        raise TrackerUnavailable(f"{place} does not take the runs: {detail.splitlines()[0]}") from error


# ---------------------------------------------------------------- MLflow
_ID_TAG, _DIGEST_TAG = "autotuner.id", "autotuner.digest"
_PARAMS, _METRICS = 100, 1000
"""Most parameters and most metrics of one request to MLflow, by its REST API."""

_STATES = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}


class MLflowRuns:
    """The runs of a sweep in MLflow: one experiment, named by the sweep's id."""

    def __init__(self, target: Target) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # 7 keep a command waiting for minutes
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines for each run
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # each new table is a line
        from mlflow.exceptions import MlflowException

        self._uri = target.address
        if not self._uri.startswith(_SERVERS):  # not later in a thread: two threads cannot import SQLAlchemy at once
            import_module("mlflow.store.tracking.sqlalchemy_store")
        parts = urlsplit(self._uri)
        secret = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        self.target = str(target).replace(secret, "", 1)
        self.place = f"MLflow at {self._uri.replace(secret, '', 1)}"
        self._error: type[Exception] = MlflowException
        self._client: Any = None
        self._experiment_id = ""
        self._known: dict[str, str] = {}
        """Ids of runs in MLflow, by the ids of their records."""

    def begin(self, sweep_id: str, about: str) -> Mapping[str, str]:
        """Create or find the sweep's experiment, and return the digest of each run by the id of its record.

        The digest of a run that was not completed is empty.
        """
        from mlflow import MlflowClient

        with _answering(self.place, self._error):
            self._client = MlflowClient(tracking_uri=self._uri)
            self._experiment_id = self._experiment(sweep_id, about)
            runs = self._client.search_runs([self._experiment_id], max_results=50_000)
        shown = self.target.removeprefix("mlflow:")
        is_site = shown.startswith("http")
        page = f"/#/experiments/{self._experiment_id}" if is_site else f", experiment {sweep_id}"
        self.place = f"MLflow at {shown.rstrip('/') if is_site else shown}{page}"
        tags = [(run.info.run_id, run.data.tags) for run in runs if _ID_TAG in run.data.tags]
        self._known = {found[_ID_TAG]: run_id for run_id, found in tags}
        return {found[_ID_TAG]: found.get(_DIGEST_TAG, "") for _, found in tags}

    def _experiment(self, name: str, about: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name, tags={"mlflow.note.content": about}))
        if found.lifecycle_stage != "active":
            raise TrackerUnavailable(
                f"the experiment {name} of {self.place} was deleted; restore it with `mlflow experiments restore "
                f"--experiment-id {found.experiment_id}`, or remove it for good with `mlflow gc`"
            )
        return str(found.experiment_id)

    def send(self, record: Record) -> None:
        """Write a record as a run. Its digest is written last, so that a run without it is known to be incomplete."""
        with _answering(self.place, self._error):
            run_id = self._known.get(record.id) or self._create(record)
            self._known[record.id] = run_id
            self._write(run_id, record)

    def _create(self, record: Record) -> str:
        tags = {_ID_TAG: record.id, "kind": record.kind}
        started_ms = None if record.started_at is None else int(record.started_at * 1000)
        made = self._client.create_run(self._experiment_id, started_ms, tags, run_name=record.name)
        return str(made.info.run_id)

    def _write(self, run_id: str, record: Record) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, 0) for name, value in record.metrics.items()]
        metrics += [
            Metric(name, value, now_ms, step)
            for step, values in enumerate(record.steps)
            for name, value in values.items()
        ]
        params = [Param(name, str(value)) for name, value in record.params.items() if value is not None]
        tags = [RunTag(name, value) for name, value in record.tags.items()]
        self._client.log_batch(run_id, tags=tags)
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(run_id, params=params[start : start + _PARAMS])
        for start in range(0, len(metrics), _METRICS):
            self._client.log_batch(run_id, metrics=metrics[start : start + _METRICS])
        for table in record.tables:
            self._client.log_text(run_id, table.csv, f"{table.name}.csv")
        finished_ms = None if record.finished_at is None else int(record.finished_at * 1000)
        self._client.set_terminated(run_id, _STATES[record.ended], finished_ms)
        self._client.set_tag(run_id, _DIGEST_TAG, record.digest)


# ---------------------------------------------------------------- Weights & Biases
_SENT = "autotuner.json"
"""Name of the file beside the local data of a W&B run that was sent completely."""

_PATIENCE_S = 30
"""Seconds for which the start and the end of a run may wait for W&B."""


class WandbRuns:
    """The runs of a sweep in a W&B project: one group, named by the sweep's id.

    The ids of runs are the ids of trials, so that a run that is sent again replaces the one before. W&B keeps the data
    of each run in a local folder, too. A file in this folder says that the run was sent.
    """

    def __init__(self, target: Target) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb = wandb
        self.target = str(target)
        self._entity, _, self._project = target.address.rpartition("/")
        self.place = f"Weights & Biases, project {target.address}"
        self._folder = Path()
        self._to: list[str] = []
        """Project and server, which the file beside each run names."""

    def begin(self, sweep_id: str, about: str) -> Mapping[str, str]:  # noqa: ARG002  # a group has no description
        """Return the digest of each run that was sent from this folder, by the id of its record."""
        with _answering(self.place, Exception):
            settings = self._wandb.setup().settings
        self._folder = Path(settings.wandb_dir)
        is_offline = settings.mode == "offline"
        self._to = [self.target, "offline" if is_offline else settings.base_url]
        self.place = f"Weights & Biases, project {self.target.removeprefix('wandb:')}, group {sweep_id}"
        if is_offline:
            self.place += f" (offline in {self._folder}; `wandb sync` uploads it)"
        files = sorted(self._folder.glob(f"*run-*-{sweep_id}*/{_SENT}"))  # by time: the last one counts
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return {one["id"]: one["digest"] for one in found if one["to"] == self._to}

    def send(self, record: Record) -> None:
        """Write a record as a run of W&B."""
        try:
            with _answering(self.place, Exception):  # W&B raises errors of many types
                self._write(record)
        except TrackerUnavailable:
            if self._wandb.run is None:  # W&B keeps the id of the failed run in use; a run of the user's own goes on
                self._wandb.teardown()
            raise

    def _write(self, record: Record) -> None:
        wandb = self._wandb
        run = wandb.init(
            entity=self._entity or None,
            project=self._project,
            group=record.sweep_id,
            job_type=record.kind,
            id=record.id,
            name=record.name,
            config=dict(record.params),
            tags=[text for name in ("status", "failure", "source") if (text := record.tags.get(name))],
            notes=record.tags.get("reason"),
            resume="allow",
            reinit="create_new",  # the user's own run, if there is one, goes on
            settings=_settings(wandb),
        )
        for step, values in enumerate(record.steps):
            run.log(dict(values), step=step)
        for table in record.tables:
            run.log({table.name: wandb.Table(columns=list(table.columns), data=[list(row) for row in table.rows])})
        run.summary.update({**record.metrics, **record.tags})
        run.finish(exit_code=0 if record.ended == "finished" else 1)
        sent = {"id": record.id, "digest": record.digest, "to": self._to}
        (Path(run.dir).parent / _SENT).write_text(json.dumps(sent), encoding="utf-8")


def _settings(wandb: Any) -> Any:
    """Return the settings of a run: W&B prints nothing, and does not record this machine, which ran no trial."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        host="",
        init_timeout=_PATIENCE_S,
        finish_timeout=_PATIENCE_S,
        finish_timeout_raises=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
