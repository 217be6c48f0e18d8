"""The product as Python functions for notebooks and scripts: ``autotuner.predict(...)`` and its neighbours.

Each function takes the fields of its REST body by name, and the argument of its command where that differs. Without
``connect``, the answer is computed in this process, and a sweep runs its trials on this machine.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autotuner.catalog import named  # noqa: F401  # the names and short forms that requests may have
from autotuner.core import documents
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.requests import ExplanationRequest, ExportRequest, ImportRequest, PredictionRequest
from autotuner.extras import installing
from autotuner.search.preview import PredictionTable

if TYPE_CHECKING:
    from autotuner.backtests.report import BacktestReport
    from autotuner.core.cluster import Cluster
    from autotuner.core.model import TransformerSpec
    from autotuner.door import Autotuner
    from autotuner.exports.shared.target import Export, Imported
    from autotuner.remote import Remote
    from autotuner.report.report import Report
    from autotuner.search.explain.explanation import Explanation
    from autotuner.search.planning.plan import PlanRun
    from autotuner.search.predicted_ranking import PredictedLayout
    from autotuner.search.results.reached import RankedTrial
    from autotuner.search.support import Support
    from autotuner.tracking import Tracked

T = TypeVar("T")

_STYLE = (
    ".autotuner td,.autotuner th{text-align:left;vertical-align:top;min-width:4em}"
    ".autotuner td span{margin-right:.4em}.autotuner p,.autotuner li{max-width:60em}"
)
"""Style sheet for answers in a notebook, where no page provides one."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """An answer of the client. It shows itself as a table in a terminal, and as an HTML table in a notebook."""

    value: T
    """The answer as the REST API sends it."""
    report: Report
    """The answer as people read it."""

    def __str__(self) -> str:
        from rich.console import Console

        from autotuner.report.terminal import render

        console = Console(width=120, no_color=True, force_jupyter=False)
        with console.capture() as capture:
            console.print(render(self.report))
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from autotuner.report.drawing import element
        from autotuner.report.file import without_links
        from autotuner.report.html import Html

        html = Html()
        inside = element("h4", self.report.headline) + html.facts(self.report) + html.sections(self.report)
        return without_links(element("style", _STYLE) + element("div", inside, class_="autotuner"))

    def to_dict(self) -> Any:
        """Return the answer as JSON data: dictionaries, lists, texts and numbers."""
        return documents.write(self.value)

    def to_markdown(self) -> str:
        """Return the answer as a Markdown text, with the same tables as in a terminal."""
        from autotuner.report.markdown import markdown

        return markdown(self.report)

    def to_frame(self) -> Any:
        """Return the rows of the answer as a pandas data frame, or as a polars data frame if pandas is not installed.

        Raises:
            ImportError: Neither pandas nor polars is installed.
        """
        return _frame(list(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield dict(self.to_dict())


class Predictions(Answer[PredictionTable]):
    """The best predicted layouts of a job, the best first, as ``Client.predict`` returns them."""

    @property
    def best(self) -> PredictedLayout:
        """Return the best predicted layout with its ``layout``, ``mfu``, ``step_time_s`` and ``peak_bytes``.

        Raises:
            InvalidInput: No layout fits in memory.
        """
        if not self.value.items:
            raise InvalidInput(
                "space",
                self.value.num_legal,
                "is the number of legal layouts, but none of them fits in memory; print the answer to see what helps",
            )
        return self.value.items[0]

    def __iter__(self) -> Iterator[PredictedLayout]:
        return iter(self.value.items)

    def __len__(self) -> int:
        return len(self.value.items)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for one in self:
            predicted = one.prediction
            yield {
                "rank": one.rank,
                "layout": str(one.layout),
                "mfu": predicted.mfu,
                "step_time_s": predicted.step_time_s,
                "relative_error": predicted.relative_error,
                "tokens_per_s": predicted.tokens_per_s,
                "peak_bytes": predicted.peak_bytes,
                "fit_probability": predicted.fit_probability,
                **_plain_options(one.layout),
            }

    def plot(self, axes: Any = None) -> Any:
        """Draw MFU against peak memory, with a line through the Pareto front, and return matplotlib's axes.

        Args:
            axes: matplotlib axes to draw on; None: new axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from autotuner.report.charts import Dot, front

        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(f"a plot needs matplotlib: run {installing('notebook')}") from error
        axes = axes or pyplot.subplots(layout="constrained", figsize=(8, 5))[1]
        dots = [Dot(x=one.peak_bytes / 1e9, y=one.mfu, name=str(one.layout)) for one in self]
        best = front(dots)
        axes.scatter([dot.x for dot in dots], [dot.y for dot in dots], color="0.6", label="predicted layouts")
        axes.plot([dot.x for dot in best], [dot.y for dot in best], marker="o", label="Pareto front")
        middle = sum(axes.get_xlim()) / 2
        for dot in best:
            place = {"textcoords": "offset points", "xytext": (0, -14), "ha": "right" if dot.x > middle else "left"}
            axes.annotate(dot.name, (dot.x, dot.y), fontsize="x-small", **place)
        axes.set(xlabel="predicted peak memory (GB)", ylabel="predicted MFU")
        axes.set_title(self.report.headline, fontsize="medium", wrap=True)
        axes.legend()
        return axes


class Ranking(Answer[Any]):
    """The ranked trials of a sweep, the best first, as ``Client.sweep`` returns them."""

    value: list[RankedTrial]

    @property
    def best(self) -> RankedTrial:
        """Return the best trial of the sweep.

        Raises:
            InvalidInput: No layout was measured.
        """
        if not self.value:
            raise InvalidInput(
                "best", None, "is not known, because no layout was measured; print the answer to see why"
            )
        return self.value[0]

    def _rows(self) -> Iterator[dict[str, Any]]:
        for one in self.value:
            measured = {name: value for name, value in documents.write(one).items() if not isinstance(value, dict)}
            yield measured | {"layout": str(one.layout), **_plain_options(one.layout)}


class Client:
    """Answers questions about training jobs, in this process or through a service.

    Args:
        url: Address of a service; None: this process answers.
        token: Token for the service; None: the value of the variable ``AUTOTUNER_TOKEN``.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._url = url
        self._token = token

    def predict(
        self,
        model: str | TransformerSpec,
        cluster: str | Cluster,
        *,
        global_batch_size: int,
        seq_len: int,
        **more: object,
    ) -> Predictions:
        """Predict the speed and memory of every legal layout of a job, and return the best ones.

        Args:
            model: Name of a model of the catalog, or its description.
            cluster: Name and number of accelerators of the catalog (``h100:64``), or a description of a cluster.
            global_batch_size: Sequences of one optimizer step, whole job.
            seq_len: Tokens of a sequence.
            **more: Other fields of ``PredictionRequest``, such as ``limit``, ``space``, ``stack`` or ``objective``.

        Raises:
            InvalidInput: A value breaks a rule; the message names the nearest legal value.

        >>> import autotuner
        >>> answer = autotuner.predict("llama-3-8b", "h100:8", global_batch_size=64, seq_len=8192)
        >>> len(answer), answer.best.rank
        (10, 1)
        """
        from autotuner.report.prediction import predictions_report

        request = _read(PredictionRequest, job_fields(model, cluster, global_batch_size, seq_len) | more)
        found = self._ask(request, lambda door: door.predict(request), lambda remote: remote.predict(request))
        return Predictions(found, predictions_report(request, found))

    def explain(
        self,
        model: str | TransformerSpec,
        cluster: str | Cluster,
        layout: str | Layout,
        *,
        global_batch_size: int,
        seq_len: int,
        **more: object,
    ) -> Answer[Explanation]:
        """Explain how a layout uses time and memory, what limits it, and which change would help.

        ``layout`` is a layout as tables print it, such as ``fsdp8 mb1``. The other arguments are those of ``predict``.

        >>> import autotuner
        >>> answer = autotuner.explain("llama-3-8b", "h100:8", "fsdp8 mb1", global_batch_size=64, seq_len=8192)
        >>> answer.value.layout.data_parallel_shard_degree
        8
        """
        from autotuner.report.explanation import explanation_report

        document = job_fields(model, cluster, global_batch_size, seq_len) | {"layout": layout}
        request = _read(ExplanationRequest, document | more)
        found, curve = self._ask(
            request,
            lambda door: (door.explain(request), door.bandwidth_curve(request)),
            lambda remote: (remote.explain_layout(request), remote.draw_bandwidth_curve(request)),
        )
        return Answer(found, explanation_report(found, curve, ran=None))

    def export(
        self,
        model: str | TransformerSpec,
        cluster: str | Cluster,
        layout: str | Layout,
        format: str,  # noqa: A002  # as REST and the command line call it
        *,
        global_batch_size: int,
        seq_len: int,
        **more: object,
    ) -> Answer[Export]:
        """Write a layout as the arguments or the configuration files of a trainer.

        ``format`` is a trainer, such as ``megatron-lm`` or ``torchtitan``. Other arguments are those of ``explain``.

        >>> import autotuner
        >>> job = {"global_batch_size": 64, "seq_len": 8192}
        >>> answer = autotuner.export("llama-3-8b", "h100:8", "fsdp8 mb1", "torchtitan", **job)
        >>> [file.name for file in answer.value.files]
        ['torchtitan.toml']
        """
        from autotuner.report.export import export_report

        document = job_fields(model, cluster, global_batch_size, seq_len) | {"layout": layout, "format": format}
        request = _read(ExportRequest, document | more)
        found = self._ask(request, lambda door: door.export(request), lambda remote: remote.export_layout(request))
        return Answer(found, export_report(found))

    def import_script(self, script: str | Path, **more: object) -> Answer[Imported]:
        """Read the layout of a launch script or of a trainer's configuration. A script is never run.

        Args:
            script: The text, or the path of its file.
            **more: Other fields of ``ImportRequest``: ``format`` and ``num_ranks``.

        >>> import autotuner
        >>> answer = autotuner.import_script("--tensor-model-parallel-size 2 --micro-batch-size 1 --bf16", num_ranks=8)
        >>> str(answer.value.layout.tensor_parallel_degree)
        '2'
        """
        from autotuner.report.export import import_report

        text = script.read_text(errors="replace") if isinstance(script, Path) else script
        request = _read(ImportRequest, {"text": text} | more)
        found = self._ask(
            request,
            lambda door: door.import_configuration(request),
            lambda remote: remote.import_configuration(request),
        )
        return Answer(found, import_report(found))

    def plan(
        self, model: str | TransformerSpec, *, tokens: float, global_batch_size: int, seq_len: int, **more: object
    ) -> Answer[PlanRun]:
        """Compare clusters for a training run by time, cost and energy.

        Args:
            model: Name of a model of the catalog, or its description.
            tokens: Tokens to train on.
            global_batch_size: Sequences of one optimizer step, whole job.
            seq_len: Tokens of a sequence.
            **more: Other fields of ``PlanRequest``, such as ``accelerators`` and ``sizes``, and the fields of its goal,
                ``deadline_s`` and ``price_limit``.

        >>> import autotuner
        >>> job = {"tokens": 1e9, "global_batch_size": 64, "seq_len": 4096}
        >>> answer = autotuner.plan("llama-3-8b", accelerators=["h100-sxm"], sizes=[8], **job)
        >>> answer.value.state.value
        'complete'
        """
        from autotuner.connections import planned
        from autotuner.report.plan import plan_report
        from autotuner.search.planning.request import Goal, PlanRequest

        of_goal = {each.name for each in fields(Goal)} & set(more)
        goal = {"num_tokens": float(tokens)} | {name: more.pop(name) for name in of_goal}
        work = {"global_batch_size": global_batch_size, "seq_len": seq_len}
        request = _read(PlanRequest, {"model": model, "workload": work, "goal": goal} | more)
        found = self._ask(request, lambda door: door.plan(request), lambda remote: planned(remote, request))
        return Answer(found, plan_report(found))

    def sweep(
        self,
        model: str | TransformerSpec,
        cluster: str | Cluster = "local",
        *,
        global_batch_size: int,
        seq_len: int,
        track: Sequence[str] = (),
        **more: object,
    ) -> Ranking:
        """Run trials of the most promising layouts of a job, and return the ranking when the sweep has ended.

        Trials need torch, and are stored in the database of the settings (``AUTOTUNER_DATABASE_URL``).

        Args:
            model: Name of a model of the catalog, or its description.
            cluster: As for ``predict``; ``local`` is this machine.
            global_batch_size: Sequences of one optimizer step, whole job.
            seq_len: Tokens of a sequence.
            track: Trackers that get each trial as a run when it ends, as for ``track``.
            **more: Other fields of ``SweepCreate``, such as ``budget={"num_trials": 8}``.
        """
        from autotuner.connections import connect, whole
        from autotuner.core.sweep_requests import SweepCreate
        from autotuner.report.sweep_standing import sweep_report
        from autotuner.trackers import Target
        from autotuner.tracking import tracked

        request = _read(SweepCreate, job_fields(model, cluster, global_batch_size, seq_len) | more)
        trackers = [Target.read(text, "track").open() for text in track]
        with connect(self._url, num_workers=1, token=self._token) as service:
            sweep_id = service.create_sweep(request).id
            with tracked(service, sweep_id, trackers, _warn):
                ended = service.wait(sweep_id)
            ranked = [one for one in whole(service.rank_sweep, ended.id) if one.rank is not None]
            return Ranking(ranked, sweep_report(ended, whole(service.list_trials, ended.id), time.time()))

    def track(self, sweep_id: str, to: str) -> Tracked:
        """Send the trials of a sweep to MLflow or Weights & Biases as they end, and return where the runs are.

        Each trial becomes a run, and the sweep becomes one with the ranking. A second call sends only what is new.

        Args:
            sweep_id: The id of the sweep.
            to: ``mlflow:URI``, such as ``mlflow:http://localhost:5000``, or ``wandb:PROJECT``.

        Raises:
            InvalidInput: ``to`` names no tracker.
            TrackerUnavailable: The tracker does not answer.
        """
        from autotuner.connections import connect
        from autotuner.trackers import Target
        from autotuner.tracking import track

        tracker = Target.read(to, "to").open()
        with connect(self._url, token=self._token) as service:
            return track(service, sweep_id, tracker, _warn)

    def backtest(self, table: str | Path, *, calibrate: int = 0, seeds: int = 20) -> Answer[BacktestReport]:
        """Predict runs that were already measured, and return the errors of the predictions.

        The errors are always computed in this process.

        Args:
            table: CSV file of measured runs.
            calibrate: Number of measured runs of each job that correct the predictions of the job's other runs.
            seeds: Number of simulated searches of each job by each sampler.
        """
        from autotuner.backtests.measured_table import read_table
        from autotuner.backtests.report import backtest
        from autotuner.report.backtest import backtest_report
        from autotuner.service.observing import silence_optuna

        silence_optuna()
        found = backtest(read_table(Path(table)), num_seeds=seeds, num_given=calibrate)
        return Answer(found, backtest_report(found))

    def support(
        self, model: str | None = None, accelerator: str | None = None, *, stack: str | None = None
    ) -> Answer[Support]:
        """Show what is measured, borrowed and assumed in predictions, by accelerator and training software.

        With an accelerator and a stack, the answer has the details of this pair.

        Args:
            model: Name of a model, to count only runs of its kind; None: all kinds of models.
            accelerator: Name or alias of an accelerator of the catalog; None: all accelerators.
            stack: Name of a software stack of the catalog; None: all stacks.

        Raises:
            NotFound: Nothing has that name; the message names the most similar one.

        >>> import autotuner
        >>> answer = autotuner.support("llama-3-8b", "h100", stack="nemo")
        >>> [(pair.accelerator, pair.level.value) for pair in answer.value.pairs]
        [('h100-sxm', 'measured')]
        """
        from autotuner.report.support import support_report

        asked = {"model": model, "accelerator": accelerator, "stack": stack}
        found = self._ask(None, lambda door: door.read_support(**asked), lambda remote: remote.read_support(**asked))
        return Answer(found, support_report(found))

    # ------------------------------------------------------------------ connections
    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; there is nothing to close, since each question uses its own connection."""

    def _ask(self, request: Any, own: Callable[[Autotuner], T], remote: Callable[[Remote], T]) -> T:
        from autotuner.connections import ask

        return ask(request, self._url, own, remote, token=self._token)


def connect(url: str, token: str | None = None) -> Client:
    """Return a client for a running service, with the same functions as this package.

    Args:
        url: Address of the service, such as ``http://127.0.0.1:8000``.
        token: Token for the service; None: the value of the variable ``AUTOTUNER_TOKEN``.
    """
    return Client(url, token)


_HERE = Client()
predict, explain, export, import_script = _HERE.predict, _HERE.explain, _HERE.export, _HERE.import_script
plan, sweep, track, backtest, support = _HERE.plan, _HERE.sweep, _HERE.track, _HERE.backtest, _HERE.support


# ---------------------------------------------------------------- documents and frames
def job_fields(model: object, cluster: object, global_batch_size: int, seq_len: int) -> dict[str, Any]:
    """Return the fields of a request that describe its job."""
    work = {"global_batch_size": global_batch_size, "seq_len": seq_len}
    return {"model": model, "cluster": cluster, "workload": work}


def _read(cls: type[T], given: Mapping[str, object]) -> T:
    """Return the request that the given fields describe; a field may be a value, JSON or words."""
    return documents.read(cls, documents.write(given))


def _warn(heard: object) -> None:
    """Warn of an error of a tracker, which does not stop a sweep."""
    if isinstance(heard, AutotunerError):
        warnings.warn(str(heard), stacklevel=2)


def _plain_options(layout: Layout) -> dict[str, Any]:
    return {name: option.to_plain(getattr(layout, name)) for name, option in OPTIONS.items()}


def _frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        try:
            import polars
        except ImportError as error:
            raise ImportError(f"a data frame needs pandas or polars: run {installing('notebook')}") from error
        return polars.DataFrame(rows)
    return pandas.DataFrame(rows)
