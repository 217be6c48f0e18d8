"""Option: everything that is known about one field of a layout, declared where the field is declared.

Columns, the search space, names, texts, pages and the sampler's distances read it, so that a new option is one
declaration in ``layout``, beside the code that computes and runs it.

"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import TypeVar, cast

from autotuner.core.choices import Choice

Value = TypeVar("Value", bound=int)

_METADATA_KEY = "option"


class Kind(Enum):
    """Which values a field takes."""

    DEGREE = "degree"  # ranks of a kind: 1, 2, 4 ...
    COUNT = "count"  # any other number
    SWITCH = "switch"  # on or off
    CHOICE = "choice"  # one member of a ``Choice``


class Topic(IntEnum):
    """What an option is about, in the order in which a layout's name says it."""

    DEGREES = 0
    PIPELINE = 1
    BATCH = 2
    TENSOR = 3
    LOSS = 4
    CONTEXT = 5
    DATA = 6
    MEMORY = 7
    IMPLEMENTATION = 8
    ATTENTION = 9
    PRECISION = 10


class CostPart(IntEnum):
    """The innermost part of the cost model that reads an option; the parts around it depend on it too.

    The cost model computes a part once for each combination of the options that enter it.
    """

    MATRIX_PRODUCTS = 0  # shapes and formats of a layer's products
    LAYER = 1  # one micro-batch in a layer, or in an end of the model
    RANK_STEP = 2  # a step of one pipeline rank
    STEP = 3  # what data-parallel ranks exchange, and the update


class CommunicationLayer(Choice):
    """Which part of the way from a model to a wire an option decides: co-design searches several of them together.

    Source: Wei et al., "Communication optimization for distributed training: architecture, advances, and
    opportunities" (arXiv 2403.07585), names strategy, collectives and network, and two that its abstract does not name
    between them; what lies in each of the five is our reading.
    """

    STRATEGY = 1, "strategy"  # how ranks share the work, and what each computes
    TASKS = 2, "task scheduling"  # when what is sent leaves beside what is computed
    COLLECTIVES = 3, "collectives"  # by which algorithm a group's bytes go
    FLOWS = 4, "flow scheduling"  # over which connections and rails these go
    NETWORK = 5, "network"  # where ranks lie on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """All that is known of one field of ``Layout``.

    Attributes:
        default: Its value where nothing is said.
        topic: What it is about.
        enters: Part of the cost model that it enters.
        word: Its word in a layout's name, ``{}`` standing for the value; empty where another field's word says it.
        label: The field in a sentence or a table.
        phrase: A changed value on a page, ``{}`` standing for it; empty where the page puts several fields together.
        lowest: Least value of a number.
        searched: Values that a sweep tries by default; None: every value that is legal.
        is_split: It says how ranks, layers or the batch are split; a space crosses these with all others.
        always_said: A layout's name says the default too.
        said_beside: Name of the degree above 1 of which a layout's name says any value, the default too.
        qualifies: Name of the field that it says more of.
        unit: What a number counts; empty for a mere count.
        plainest_first: Values from the one that all others are compared with; empty: in their own order.
        is_number_format: It says in which format numbers are multiplied or summed.
        changes_mathematics: Values that train another function than all other layouts do.
        layer: Which part of the way to the wire it decides.
    """

    kind: Kind
    default: int
    topic: Topic
    enters: CostPart
    label: str
    word: str = ""
    phrase: str = ""
    lowest: int = 0
    searched: tuple[int, ...] | None
    is_split: bool = False
    always_said: bool = False
    said_beside: str = ""
    qualifies: str = ""
    unit: str = ""
    plainest_first: tuple[int, ...] = ()
    is_number_format: bool = False
    changes_mathematics: tuple[int, ...] = ()
    layer: CommunicationLayer = CommunicationLayer.STRATEGY

    @property
    def is_number(self) -> bool:
        """Whether its values have an order and a size."""
        return self.kind in (Kind.DEGREE, Kind.COUNT)

    @property
    def values(self) -> tuple[int, ...]:
        """Every value of a switch or a choice; empty for a number."""
        if self.kind == Kind.SWITCH:
            return (False, True)
        return tuple(cast("type[Choice]", type(self.default))) if self.kind == Kind.CHOICE else ()

    def value_of(self, number: int) -> int:
        """An integer of a column as the field's own type: a number, a bool or a member of its ``Choice``."""
        return type(self.default)(number)

    def plain(self, value: int) -> int | str:
        """A value as JSON and Optuna hold it: a choice by its word."""
        return value.label if isinstance(value, Choice) else value

    def from_plain(self, value: int | str, name: str) -> int:
        """What ``plain`` was made of.

        Raises:
            InvalidInput: No member of the choice has that word; with the nearest.
        """
        if isinstance(self.default, Choice):
            return type(self.default).from_label(value, name)
        return self.value_of(int(value))

    def said(self, value: int) -> str:
        """The word for a value."""
        return self.word.format(value)


def option(
    default: Value,
    kind: Kind,
    label: str,
    word: str = "",
    phrase: str = "",
    *,
    topic: Topic,
    enters: CostPart,
    lowest: int | None = None,
    searched: tuple[Value, ...] | None = (),
    is_split: bool = False,
    always_said: bool = False,
    said_beside: str = "",
    qualifies: str = "",
    unit: str = "",
    plainest_first: tuple[Value, ...] = (),
    is_number_format: bool = False,
    changes_mathematics: tuple[Value, ...] = (),
    layer: CommunicationLayer = CommunicationLayer.STRATEGY,
) -> Value:
    """Declare a field of ``Layout``; the arguments are the attributes of ``Option``.

    A number begins at 1 where ``lowest`` is left out, and the default alone is searched where ``searched`` is.
    """
    declared = Option(
        kind=kind,
        default=default,
        label=label,
        word=word,
        phrase=phrase,
        topic=topic,
        enters=enters,
        lowest=int(kind in (Kind.DEGREE, Kind.COUNT)) if lowest is None else lowest,
        searched=(default,) if searched == () else searched,
        is_split=is_split,
        always_said=always_said,
        said_beside=said_beside,
        qualifies=qualifies,
        unit=unit,
        plainest_first=plainest_first,
        is_number_format=is_number_format,
        changes_mathematics=changes_mathematics,
        layer=layer,
    )
    return field(default=default, metadata={_METADATA_KEY: declared})


def degree(label: str, word: str = "", *, enters: CostPart, searched: tuple[int, ...] | None = None) -> int:
    """Declare a field of ``Layout`` that counts ranks of a kind; every legal number is searched if none is named."""
    topic = Topic.DEGREES
    return option(1, Kind.DEGREE, label, word, topic=topic, enters=enters, searched=searched, is_split=True)


def options_of(cls: type[object]) -> dict[str, Option]:
    """Every option that a dataclass declares, by field, in their order."""
    return {f.name: f.metadata[_METADATA_KEY] for f in fields(cls)}  # type: ignore[arg-type]
