"""Option: the declaration of one field of a layout, written beside the field.

The field of a layout and the column of many layouts share one declaration. ``Option[int]`` is an ``int`` in a
``Layout`` and an integer column in a ``LayoutColumns``. Type checkers see both. At run time ``Option[int]`` is ``int``.

The columns, the search space, the names of layouts, the texts and pages, the neighbours of a layout and the sampler's
distances all follow from the declaration. So a new option needs one declaration in ``layout``, and the code that
computes its cost and runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, cast, get_type_hints, overload

from autotuner.core.choices import Choice

if TYPE_CHECKING:
    from autotuner.core.columns import Booleans, Choices, Integers, LayoutColumns
    from autotuner.core.layout import Layout

Value = TypeVar("Value", bound=int)
Member = TypeVar("Member", bound=Choice)

ALL: None = None
"""Value of ``searched``: a sweep tries every legal value."""

_METADATA_KEY = "option"


class Kind(Enum):
    """The kinds of values that an option of a layout can have: a degree, another count, a switch, or a choice."""

    DEGREE = "degree"  # a number of ranks
    COUNT = "count"  # any other number
    SWITCH = "switch"  # on or off
    CHOICE = "choice"  # a member of a ``Choice``


@dataclass(frozen=True, slots=True)
class Lowest:
    """A mark (in ``Annotated``) with the least legal value of a number. The constructor of ``Layout`` checks it."""

    value: int


@dataclass(frozen=True, slots=True)
class Highest:
    """A mark (in ``Annotated``) with the greatest legal value of a number. The constructor of ``Layout`` checks it."""

    value: int


Degree: TypeAlias = Annotated[int, Lowest(1), Kind.DEGREE]
Count: TypeAlias = Annotated[int, Lowest(1)]
CountFromZero: TypeAlias = Annotated[int, Lowest(0)]
Percent: TypeAlias = Annotated[int, Lowest(0), Highest(100)]


class Topic(IntEnum):
    """The topic of an option, such as the pipeline. The words of a layout's name are in the order of the topics."""

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
    """The parts of the cost model, the innermost first. An option states the innermost part that reads it.

    All outer parts use the results of the inner parts, and so depend on the option, too. The cost model computes each
    part once for each combination of the options that the part depends on.
    """

    PRODUCTS = 0  # shapes and formats of the matrix products of a layer
    LAYER = 1  # one micro-batch in a layer, the embedding or the loss
    RANK = 2  # one step of one pipeline rank
    STEP = 3  # the exchange between data-parallel ranks, and the optimizer


class CommunicationLayer(Choice):
    """The layer of communication, from the model down to the wire, that an option belongs to.

    Co-design searches the options of several layers together.

    Source: Wei et al., "Communication optimization for distributed training: architecture, advances, and opportunities"
    (arXiv 2403.07585). The abstract of this paper names strategy, collectives and network, but not the two layers
    between them. The assignment of options to the five layers is our reading.
    """

    STRATEGY = 1, "strategy"  # how ranks share the work, and what each computes
    TASKS = 2, "task scheduling"  # when data is sent, relative to the computation
    COLLECTIVES = 3, "collectives"  # the algorithms that transfer a group's data
    FLOWS = 4, "flow scheduling"  # the connections and rails that transfer the data
    NETWORK = 5, "network"  # the places of ranks on the network


SETTING = 1.0
"""Complexity of a trainer setting that everyone must know who reads, moves or takes over the job."""

METHOD = 2.0
"""Complexity of a method that people must understand before they can debug a job that uses the method."""

MACHINERY = 3.0
"""Complexity of special hardware, of processes beside the ranks, or of a setting that takes effect only after a
restart."""

NOT_EQUIVALENT = 4.0
"""Complexity of an option with which another function is trained. Its convergence must be checked and explained to the
users of the model."""


@dataclass(frozen=True, slots=True)
class Burden:
    """The complexity that some values of an option add to a layout, with its reason. The weights are assumptions."""

    weight: float
    reason: str
    values: tuple[int, ...] = ()
    """Values of the option that add the complexity; empty: all values except the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """The description of one option of a layout: its default, its legal values, and its words."""

    name: str
    kind: Kind
    default: int
    lowest: int
    """Smallest legal value of a number."""
    highest: int | None
    """Largest legal value of a number, whatever the rest of the layout is; None: no limit."""
    word: str = ""
    """Word in a layout's name; ``{}`` stands for the value. Empty if the word of another option includes it."""
    label: str
    """Name of the option as a noun, for tables and sentences."""
    topic: Topic
    enters: CostPart
    """Innermost part of the cost model that reads the option."""
    searched: tuple[int, ...] | None
    """Values that a sweep tries by default; None: every legal value."""
    is_split: bool = False
    """True if the option says how ranks, layers or the batch are split. A search space combines these options with all
    others."""
    always_shown: bool = False
    """True if a layout's name also shows the option at its default."""
    shown_beside: str = ""
    """Name of a degree. A layout's name shows the option at its default if this degree is above 1."""
    qualifies: str = ""
    """Name of the main option that this option is a detail of."""
    phrase: str = ""
    """Text for the option's value in answers and pages, where ``{}`` stands for the value. Empty: the texts describe
    this option together with others."""
    step_parts: tuple[str, ...] = ()
    """Parts of ``StepTime`` whose formula the option selects. An interval is wider if that formula was not compared
    with a measured run."""
    unit: str = ""
    """Unit of a number. Empty for a mere count."""
    plainest_first: tuple[int, ...] = ()
    """All values, beginning with the plainest, which the others are compared with. Empty: the order of the values."""
    is_number_format: bool = False
    """True if numbers are multiplied or summed in the number format that the option names."""
    not_equivalent: tuple[int, ...] = ()
    """Values with which training is not numerically equivalent to training with the other values."""
    layer: CommunicationLayer = CommunicationLayer.STRATEGY
    """Layer of communication, from the model down to the wire, that the option belongs to."""
    burdens: tuple[Burden, ...] = ()
    """Complexity that the values of the option add."""
    offered: tuple[int, ...] = ()
    """Values of a number that forms offer, ascending. Empty: the values depend on the job."""
    only_in: tuple[str, ...] = ()
    """Names of the catalog's stacks that support the option; empty: all of them. With other stacks, and in exports for
    other trainers, the option has its default."""

    @property
    def is_number(self) -> bool:
        """True if the option is a number, so that its values have an order and a size."""
        return self.kind in (Kind.DEGREE, Kind.COUNT)

    @property
    def values(self) -> tuple[int, ...]:
        """Return all values of an option that is a switch (on or off) or a choice; empty if the option is a number."""
        if self.kind is Kind.SWITCH:
            return (False, True)
        return tuple(cast("type[Choice]", type(self.default))) if self.kind is Kind.CHOICE else ()

    def value_of(self, number: int) -> int:
        """Return the option's value for a number in a column: an int, a bool or a member of a ``Choice``."""
        return type(self.default)(number)

    def to_plain(self, value: int) -> int | str:
        """Return a value of the option as JSON and Optuna hold it: a choice becomes its label."""
        return value.label if isinstance(value, Choice) else value

    def in_words(self, number: int) -> str:
        """Return the option's value as people read it: a number, a label, ``on`` or ``off``.

        Args:
            number: The value as a number, as columns of layouts hold it.

        Example:
            >>> from autotuner.core.layout import OPTIONS
            >>> OPTIONS["recompute"].in_words(2), OPTIONS["sequence_parallel"].in_words(1)
            ('full', 'on')
        """
        if self.kind is Kind.SWITCH:
            return "on" if number else "off"
        return str(self.to_plain(self.value_of(number))).replace("_", " ")

    def from_plain(self, value: int | str) -> int:
        """Return the value of the option that a JSON value stands for; it reverses ``to_plain``.

        Raises:
            InvalidInput: The choice has no such label. The error suggests the nearest label.
        """
        if isinstance(self.default, Choice):
            return type(self.default).from_label(value, self.name)
        return self.value_of(int(value))


def option(default: Value, *, topic: Topic, enters: CostPart, **known: Any) -> Option[Value]:
    """Return a dataclass field that declares an option of a layout.

    The kind and the least value come from the type annotation of the field. Without ``label``, the label is the name of
    the field. Without ``searched``, a sweep tries only the default.

    Args:
        default: Default value of the option.
        topic: Topic of the option.
        enters: Innermost part of the cost model that reads the option.
        **known: Other attributes of ``OptionSpec``.
    """
    known = {"searched": (default,)} | known | {"topic": topic, "enters": enters}
    return cast("Option[Value]", field(default=default, metadata={_METADATA_KEY: known}))


def degree(word: str = "", *, searched: tuple[int, ...] | None = ALL, **known: Any) -> Option[int]:
    """Return a dataclass field that declares a degree of parallelism: an option that counts ranks.

    Args:
        word: Word for the degree in a layout's name.
        searched: Values that a sweep tries by default; None: every legal value.
        **known: Other attributes of ``OptionSpec``.
    """
    return option(1, word=word, topic=Topic.DEGREES, searched=searched, is_split=True, **known)


def pipeline_option(default: Value, **known: Any) -> Option[Value]:
    """Return a dataclass field that declares an option about the pipeline.

    The field is an ``option`` with the topic ``PIPELINE``, on which the cost of a pipeline rank depends.

    Args:
        default: Default value of the option.
        **known: Other attributes of ``OptionSpec``.
    """
    return option(default, topic=Topic.PIPELINE, enters=CostPart.RANK, **known)


def collective_option(default: Value, *, enters: CostPart = CostPart.LAYER, **known: Any) -> Option[Value]:
    """Return a dataclass field that declares an option about collectives of data-parallel ranks.

    The field is an ``option`` with the topic ``DATA`` and the communication layer ``COLLECTIVES``.

    Args:
        default: Default value of the option.
        enters: Innermost part of the cost model that reads the option.
        **known: Other attributes of ``OptionSpec``.
    """
    layer = CommunicationLayer.COLLECTIVES
    return option(default, topic=Topic.DATA, enters=enters, layer=layer, **known)


def exchange_detail(default: Value, **known: Any) -> Option[Value]:
    """Return a dataclass field that declares a detail of the exchange between replicas (``gradient_sync``).

    The field is an ``option`` with the topic ``DATA``, on which only the cost of the whole step depends.

    Args:
        default: Default value of the option.
        **known: Other attributes of ``OptionSpec``.
    """
    return option(default, topic=Topic.DATA, enters=CostPart.STEP, qualifies="gradient_sync", **known)


def specs_of(cls: type[Any]) -> dict[str, OptionSpec]:
    """Return the descriptions of all options of a layout class by name, in the order of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: _spec(each.name, hints[each.name], each.default, each.metadata) for each in fields(cls)}


def _spec(name: str, hint: Any, default: Any, metadata: Mapping[str, Any]) -> OptionSpec:
    extras = getattr(hint, "__metadata__", ())
    lowest = next((extra.value for extra in extras if isinstance(extra, Lowest)), 0)
    highest = next((extra.value for extra in extras if isinstance(extra, Highest)), None)
    if isinstance(default, bool):
        kind = Kind.SWITCH
    elif isinstance(default, Choice):
        kind = Kind.CHOICE
    else:
        kind = Kind.DEGREE if Kind.DEGREE in extras else Kind.COUNT
    known = {"label": name.replace("_", " "), "lowest": lowest, "highest": highest} | metadata[_METADATA_KEY]
    return OptionSpec(name=name, kind=kind, default=default, **known)


# ---------------------------------------------------------------- the type of a field
if TYPE_CHECKING:

    class Option(Generic[Value]):
        """A value in a ``Layout``, and a column in a ``LayoutColumns``."""

        @overload
        def __get__(self, owner: Layout, cls: Any) -> Value: ...
        @overload
        def __get__(self: Option[bool], owner: LayoutColumns, cls: Any) -> Booleans: ...
        @overload
        def __get__(self: Option[int], owner: LayoutColumns, cls: Any) -> Integers: ...
        @overload  # last, since mypy does not hold the type of ``self`` to the bound of ``Member``
        def __get__(self: Option[Member], owner: LayoutColumns, cls: Any) -> Choices: ...
        def __get__(self, owner: Any, cls: Any) -> Any: ...
        def __set__(self, owner: Any, value: Value) -> None: ...

else:

    class Option:
        """A value in a ``Layout``, and a column in a ``LayoutColumns``."""

        def __class_getitem__(cls, value_type):
            """Return the type itself: a layout is a plain dataclass."""
            return value_type
