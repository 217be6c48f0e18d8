"""The form for a new sweep: an input for each field of the request, and groups of inputs for compound fields.

Models and clusters come from several sources, each axis of the space is set in one of three ways, and a fault trace may
last longer than its lines say. The form keeps everything that the user typed, whether it is legal or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Self

from autotuner.api.dashboard.forms import text_in
from autotuner.api.dashboard.views.address import DEFAULT
from autotuner.catalog.hardware import load_accelerator
from autotuner.core.amounts import read_count
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.codec import to_plain, without_defaults
from autotuner.core.documents import extended
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.fault_trace import FaultTrace, at_worst
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.option import Kind, OptionSpec
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import Input, inputs_of, to_document, to_text
from autotuner.report.layouts import option_value
from autotuner.search.space.trainers import trial_space
from autotuner.service.build import App

INPUTS = inputs_of(SweepCreate, has_all=True)

BY_NAME, DESCRIBED, CATALOG, STORED = "name", "described", "catalog", "stored"
"""Sources of a model or of a cluster, beside ``local``."""

STEPS = "fault_steps"
"""Name of the input for the length of a fault trace, which its lines may leave open."""

_OF_SWEEP = "sweep:"

_Values = Mapping[str, tuple[str, ...]]


# ---------------------------------------------------------------- axes of the space
SUITS, EVERY, CHOSEN = "suits", "all", "chosen"
"""Ways to set an axis: leave it out, name every value, or name only chosen values."""

_LETTERS = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "micro_batch_size": "mb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An option of layouts that a sweep can vary (an axis of its search space), as the form for a sweep shows it."""

    option: OptionSpec
    values: Mapping[str, str]
    """Words for each value of a switch or a choice, by the value that a form sends; empty for a number."""
    is_usual: bool
    """True if the option is one that people often choose."""

    @property
    def path(self) -> str:
        """Path of the axis in the request, such as ``space.recompute``.

        The form has an input with this name, which says whether the axis takes its default, every or chosen values.
        """
        return f"space.{self.option.name}"

    @property
    def letters(self) -> str:
        """Short name of the option, such as ``tp``, for its column in tables of layouts; empty if it has none."""
        return _LETTERS.get(self.option.name, "")

    @property
    def takes_all(self) -> bool:
        """True if a sweep can search every legal value of this option of layouts, so that the form offers this."""
        return bool(self.values) or self.option.kind == Kind.DEGREE or self.option.searched is None

    def in_words(self, values: Sequence[int] | None) -> str:
        """Return values of the axis as a text for people, separated by commas; None becomes "every legal value"."""
        if values is None:
            return "every legal value"
        return ", ".join(option_value(self.option.name, value) for value in values)

    def read(self, how: str, given: Sequence[str]) -> Any:
        """Return the values of the axis for the request's body; None stands for every legal value.

        Args:
            how: State of the axis: every value (``EVERY``) or only chosen values.
            given: Texts of the chosen values; one text may hold several values. A text that is not a legal value stays
                in the result, so that the check of the request refuses it with its name.
        """
        if how == EVERY and not self.values:
            return None
        texts = self.values if how == EVERY else [one for text in given for one in text.replace(",", " ").split()]
        return [_json(text) for text in texts]

    def texts(self, values: Sequence[int] | None, suiting: Sequence[int] | None) -> _Values:
        """Return the texts of form elements that set the axis to the given values.

        Args:
            values: Values to search; None: every legal value.
            suiting: Values that a sweep of this job searches by default. If they equal ``values``, no text is needed
                and the result is empty.
        """
        if values == suiting:
            return {}
        said = tuple(_text(self.option.to_plain(self.option.value_of(value))) for value in values or ())
        if values is None or (self.values and set(said) == set(self.values)):
            return {self.path: (EVERY,)}
        return {self.path: (CHOSEN,), f"{self.path}.values": said if self.values else (", ".join(said),)}


def _text(value: int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(text: str) -> Any:
    return {"true": True, "false": False}.get(text, int(text) if text.isascii() and text.isdecimal() else text)


_USUAL = (
    *("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree"),
    *("data_parallel_shard_degree", "shard_level", "micro_batch_size", "recompute", "pipeline_schedule"),
    *("sequence_parallel", "precision", "attention_kernel", "compiled"),
)


def _axis(name: str) -> Axis:
    one = OPTIONS[name]
    words = {_text(one.to_plain(value)): option_value(name, value) for value in one.values}
    return Axis(option=one, values=words, is_usual=name in _USUAL)


_NAMES = [each.name for each in fields(SearchSpace)]  # type: ignore[arg-type]  # a dataclass at run time

AXES: Mapping[str, Axis] = {name: _axis(name) for name in (*_USUAL, *(each for each in _NAMES if each not in _USUAL))}
"""Every axis by its field; axes that people often choose come first."""

OWN = (STEPS, *(axis.path for axis in AXES.values()))
"""Names of form elements that hold only a part of a field."""


# ---------------------------------------------------------------- the form
@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The content of the form for a sweep, as a browser sends it: the texts of each form element, by name."""

    values: _Values
    """Values by the name of the form element; checkboxes with the same name have several values."""

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Return the form with the given pairs of element name and text, as a browser sends them."""
        values: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            values[name] = (*values.get(name, ()), value)
        return cls(values=values)

    @classmethod
    def of_query(cls, pairs: Iterable[tuple[str, str]], app: App) -> Self:
        """Return the form with texts from a query.

        The query may contain inputs of the form. It may also contain a job, as the addresses of ``/explore`` do. Values
        that the query leaves out come from the example job of that page.

        Raises:
            NotFound: The query names a sweep that is not stored.
        """
        given = {name: texts for name, texts in cls.of_pairs(pairs).values.items() if any(texts)}
        said = {name: texts[-1] for name, texts in given.items()}
        said = {"seq_len": str(DEFAULT.seq_len), "global_batch_size": str(DEFAULT.global_batch_size)} | said
        texts = {one.name: (text,) for one in INPUTS if (text := text_in(one, said))}
        elements = {name: texts for name, texts in given.items() if "." in name or name == STEPS}
        model, cluster = said.get("model", DEFAULT.model), said.get("cluster", DEFAULT.cluster)
        if model.startswith(_OF_SWEEP):
            model = _name_of(app.store.get_sweep(model.removeprefix(_OF_SWEEP)).request.job.model, app.model)
        if cluster.startswith(_OF_SWEEP):
            cluster = _name_of(app.store.get_sweep(cluster.removeprefix(_OF_SWEEP)).request.job.cluster, app.cluster)
        return cls(values={**texts, **_model(model), **_cluster(cluster), **elements})

    @classmethod
    def of_request(cls, request: SweepRequest, app: App) -> Self:
        """Return the form filled in so that it asks for the same sweep as the given request, for a copy of a sweep."""
        job, trace, few = request.job, request.fault_trace, request.trial_cluster
        cluster, links = _healthy(job.cluster, app)
        asked = extended(
            SweepCreate,
            request,
            model=job.model,
            cluster=cluster,
            workload=job.workload,
            link_health=links,
            space={},
            objective=replace(request.objective, under_faults=False),  # a trace sets this itself
            trainer=None if request.trainer is None else request.trainer.name,
            trial_cluster=None if few is None else _name_of(few, app.cluster),
        )
        values: dict[str, tuple[str, ...]] = {}
        values |= {one.name: (to_text(attrgetter(".".join(one.path))(asked), one),) for one in INPUTS}
        values |= _model(_name_of(job.model, app.model)) | _cluster(_name_of(cluster, app.cluster))
        if trace is not None and FaultTrace.parse(str(trace)) != trace:
            values |= {"fault_trace": (str(trace),), STEPS: (str(trace.num_steps),)}
        suiting = trial_space(at_worst(job, trace), request.trainer, {}, is_gated=request.convergence_gate.enabled)
        for name, axis in AXES.items():
            values |= axis.texts(request.space.values(name), suiting.values(name))
        return cls(values=values)

    def holding(self, words: str, suiting: SearchSpace) -> Form:
        """Return the form with a search space that also contains the values of the given layout.

        Args:
            words: The layout as tables print it.
            suiting: The space that the sweep would search by default. Axes that the form already sets are not changed.

        Raises:
            InvalidInput: A word of the layout is unknown.
        """
        layout: Layout = Layout.parse(words)
        changed: dict[str, tuple[str, ...]] = {}
        for name, axis in AXES.items():
            values, value = suiting.values(name), getattr(layout, name)
            if values is not None and value not in values and axis.path not in self.values:
                changed |= axis.texts((*values, value), values)
        return Form(values={**self.values, **changed})

    def text(self, name: str, default: str = "") -> str:
        """Return the text of a form element without spaces at its ends; ``default`` if the form lacks the element."""
        return self.values.get(name, (default,))[-1].strip()

    def how(self, name: str) -> str:
        """Return which values of an option the sweep searches: ``SUITS`` (the default), ``EVERY`` or ``CHOSEN`` ones.

        ``name`` is the name of the option, such as ``recompute``.
        """
        return self.text(f"space.{name}", CHOSEN if f"space.{name}.values" in self.values else SUITS)

    @property
    def texts(self) -> Mapping[str, str]:
        """The text that each input shows, by the name of the input; its default text if the form has none for it."""
        return {one.name: self.values.get(one.name, (one.default,))[-1] for one in INPUTS}

    def request_texts(self, without: Collection[str] = ()) -> Mapping[str, str]:
        """Return the texts for the request by the name of the input, without texts that are empty or equal the default.

        Args:
            without: Fields of the request that are left out.

        Raises:
            InvalidInput: The length of the fault trace is not a legal number of steps.
        """
        texts = self.texts
        inputs = {one.name: text for one in INPUTS if (text := texts[one.name].strip()) != one.default}
        inputs |= {"model": self._model(), "cluster": self._cluster()}
        inputs |= {"space": self._space(), "fault_trace": self._trace()}
        return {one.name: inputs[one.name] for one in INPUTS if inputs.get(one.name) and one.path[0] not in without}

    def document(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the body of ``POST /sweeps`` for the form. Illegal values stay in it; the service refuses them later.

        Args:
            without: Fields of the request that are left out.

        Raises:
            InvalidInput: A text cannot be read as a value of its input.
        """
        return to_document(INPUTS, self.request_texts(without))

    def _model(self) -> str:
        return self.text("model.document" if self.text("model.from") == DESCRIBED else "model")

    def _cluster(self) -> str:
        match self.text("cluster.from", CATALOG):
            case "local":
                return LOCAL
            case "stored":
                return self.text("cluster.stored")
            case "described":
                return self.text("cluster.document")
        name = f"{self.text('cluster.accelerator')}:{self.text('cluster.count')}"
        engine, _, queue = self.text("cluster.engine", LOCAL).partition("/")
        elsewhere = {"base": name, "name": name, "engine": engine, "queue": queue}
        return name if engine in ("", LOCAL) else json.dumps({key: text for key, text in elsewhere.items() if text})

    def _space(self) -> str:
        asked = {name: self.how(name) for name in AXES}
        space = {
            name: AXES[name].read(how, self.values.get(f"space.{name}.values", ()))
            for name, how in asked.items()
            if how != SUITS
        }
        return json.dumps(space) if space else ""

    def _trace(self) -> str:
        lines, steps = self.text("fault_trace"), self.text(STEPS)
        if not lines or not steps:
            return lines
        trace, num_steps = FaultTrace.parse(lines), read_count(STEPS, steps)
        try:
            return json.dumps(to_plain(replace(trace, num_steps=num_steps)))
        except InvalidInput as error:
            raise InvalidInput(STEPS, error.value, error.rule, error.nearest) from error


# ---------------------------------------------------------------- sources of models and clusters
def _model(text: str) -> dict[str, tuple[str, ...]]:
    if text.startswith("{"):
        return {"model.from": (DESCRIBED,), "model.document": (text,), "model": ("",)}
    return {"model.from": (BY_NAME,), "model": (text,)}


def _cluster(text: str) -> dict[str, tuple[str, ...]]:
    accelerator, _, count = text.partition(":")
    if text == LOCAL:
        return {"cluster.from": (LOCAL,)}
    if text.startswith("{"):
        return {"cluster.from": (DESCRIBED,), "cluster.document": (text,)}
    if count and _is_known(load_accelerator, accelerator):
        return {"cluster.from": (CATALOG,), "cluster.accelerator": (accelerator,), "cluster.count": (count,)}
    return {"cluster.from": (STORED,), "cluster.stored": (text,)}


def _is_known(find: Callable[[str], object], name: str, thing: object = None) -> bool:
    """Return True if the name is known; if ``thing`` is given, True only if the name means this thing."""
    try:
        return find(name) == thing or thing is None
    except AutotunerError:
        return False


def _name_of(thing: TransformerSpec | Cluster, find: Callable[[str], object]) -> str:
    """Return the name of a model or cluster if the name still means the same; else the whole description as JSON."""
    is_this_machine = isinstance(thing, Cluster) and thing.name == LOCAL  # however the machine looks now
    is_named = is_this_machine or _is_known(find, thing.name, thing)
    return thing.name if is_named else json.dumps(without_defaults(thing), indent=1)


def _healthy(cluster: Cluster, app: App) -> tuple[Cluster, tuple[LinkHealth, ...]]:
    """Return the cluster as its name describes it, and the states of links that this description does not contain."""
    named = replace(cluster, link_health=())
    knows = cluster.name != LOCAL and _is_known(app.cluster, cluster.name, cluster)
    if not knows and (cluster.name == LOCAL or _is_known(app.cluster, cluster.name, named)):
        return named, cluster.link_health
    return cluster, ()


# ---------------------------------------------------------------- groups of inputs
LINKS, SELDOM = "Slow and failing links", "Advanced"

_GROUPS = {"workload": "Workload", "budget": "Budget", "trial_cluster": "The sweep"}
_GROUPS |= {"link_health": LINKS, "fault_trace": LINKS, "model": "", "cluster": "", "space": ""}


def group_of(one: Input) -> str:
    """Return the title of the group that an input belongs to; empty if the form has its own elements for the input."""
    return _GROUPS.get(one.path[0], one.topic or (SELDOM if one.is_rare else "The sweep"))
