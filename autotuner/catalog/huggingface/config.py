"""Config: reads the keys of a ``config.json`` with type checks, and the fields of a model from these keys.

A family of models is a table: each field of the model has a value, or a function that reads the value from the
document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.value import nearest_divisor

T = TypeVar("T")

_LARGEST = 2**40
"""Maximum of every dimension of a model."""

_MOST_LAYERS = 100_000
"""Maximum length of a list of layers."""

_FALLS_BACK = "a kernel that does not support {} falls back to one that keeps its scores in memory"
ALIBI = "positions are biases of the scores (ALiBi), predicted as a rotation: " + _FALLS_BACK.format("them")
SOFT_CAP = "scores are capped by a hyperbolic tangent, predicted without it: " + _FALLS_BACK.format("it")


@dataclass(frozen=True, slots=True)
class Config:
    """A parsed ``config.json`` whose methods read one value each and check its type.

    A method that takes several keys reads the first key that is present, because models spell the same key in different
    ways. ``null`` counts as missing. A value of the wrong type raises ``InvalidInput``, which names the key.
    """

    document: Mapping[str, Any]

    @property
    def model_type(self) -> object:
        """The value of the key ``model_type``, which names the model's architecture; None if the key is missing."""
        return self.document.get("model_type")

    def has(self, key: str) -> bool:
        """Return True if the document has the key and its value is not null."""
        return self.document.get(key) is not None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """Return the whole number above 0 of the first key that is present, or the default.

        Args:
            *keys: Spellings of one key, in the order in which they are tried.
            default: Result if all keys are missing; None: the key is required.
        """
        key, value = self._first(keys)
        if value is None:
            if default is None:
                raise InvalidInput(key, None, f"is required for model_type {self.model_type}")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            is_near = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
            nearest = min(max(round(value), 1), _LARGEST) if is_near else None
            raise InvalidInput(key, value, f"must be a whole number above 0, and at most {_LARGEST:,}", nearest)
        return value

    def count(self, *keys: str, default: int = 0) -> int:
        """Return the whole number (0 or more) of the first key that is present, or the default.

        Args:
            *keys: Spellings of one key, in the order in which they are tried.
            default: Result if all keys are missing.
        """
        _, value = self._first(keys)
        if value is None:
            return default
        return 0 if value == 0 and type(value) is int else self.integer(*keys)

    def stated(self, *keys: str) -> int:
        """Return the whole number of a required key; null counts as 0.

        Use this method for keys whose absence would mean another number than 0, so that a missing key raises an error.

        Args:
            *keys: Spellings of one key, in the order in which they are tried.
        """
        if not any(key in self.document for key in keys):
            raise InvalidInput(
                keys[0], None, f"is required for model_type {self.model_type}; write null if the model has none"
            )
        return self.count(*keys)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return the boolean of the first key that is present, or the default."""
        key, value = self._first(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(key, value, "must be true or false")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return the list of strings of a key, such as the kind of each layer; None if the key is missing."""
        return self._list(key, str, "words")

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return the list of whole numbers of a key, such as layer numbers; empty if the key is missing."""
        return self._list(key, int, "whole numbers") or ()

    def inner(self, key: str) -> Config | None:
        """Return the object of a key, such as ``text_config``, as a ``Config``; None if the key is missing."""
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidInput(key, value, "must be an object")
        return Config(value)

    def _list(self, key: str, kind: type[T], noun: str) -> tuple[T, ...] | None:
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > _MOST_LAYERS or any(type(item) is not kind for item in value):
            raise InvalidInput(key, value, f"must be a list of {noun}")
        return tuple(value)

    def _first(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        present = next((key for key in keys if self.has(key)), keys[0])
        return present, self.document.get(present)


# ---------------------------------------------------------------- tables of fields
Read: TypeAlias = Callable[[Config], Any]
"""A function that reads the value of a field from a configuration. If it returns a dict, the dict has the values of
several fields."""

Table: TypeAlias = Mapping[str, Any]
"""Values, or functions that read them, by field. A function that reads several fields, or only checks the document, has
a name of its own as key."""


def family(*bases: Table, **fields: Any) -> Table:
    """Return a table that says how to read each field of a family of models: a value, or a function that reads it.

    Args:
        *bases: Tables whose entries are added. If two tables have an entry for a field, the last table counts.
        **fields: Entries that come first and replace entries of the bases.
    """
    return fields | {field: entry for base in bases for field, entry in base.items() if field not in fields}


def read_fields(config: Config, table: Table) -> dict[str, Any]:
    """Return the value of every field of a table, read from the configuration.

    Args:
        config: The configuration to read.
        table: For each field, a value or a function that reads one or more values. Entries are read in their order. If
            two entries give the same field, the first entry counts.
    """
    values: dict[str, Any] = {}
    for field, entry in table.items():
        if field not in values:
            value = entry(config) if callable(entry) else entry
            values |= value if isinstance(value, dict) else {field: value}
    return values


def read_model(config: Config, name: str, table: Table) -> TransformerSpec:
    """Return the model that a configuration describes, read by the table of its family.

    Args:
        config: The configuration to read.
        name: Name of the model in answers.
        table: Values, or functions that read them, by field. A table without ``hidden_size`` takes all fields that it
            lacks from the table of Llama.

    Raises:
        InvalidInput: A field is missing or has a wrong value. The error names the field.
    """
    values = read_fields(config, table if "hidden_size" in table else family(_SHAPES, **table))
    approximations = (*values.pop("approximations", ()), *values.pop("left_out", ()))
    return TransformerSpec(name=name, approximations=approximations, **values)


def _reader(read: Callable[..., Any]) -> Callable[..., Read]:
    """Return a factory of read functions.

    The factory takes the arguments of a method of ``Config``, and returns a function that calls the method with them.
    """
    return lambda *keys, **default: lambda config: read(config, *keys, **default)


integer, count, stated, flag = map(_reader, (Config.integer, Config.count, Config.stated, Config.flag))


def bias(key: str = "attention_bias", *, default: bool = False, kind: str = "all") -> Read:
    """Return a function that reads which attention projections have a bias.

    The function returns ``kind`` if the key is true, otherwise ``none``.

    Args:
        key: Boolean key of the configuration.
        default: Value of the key if it is missing.
        kind: Projections that have a bias if the key is true: ``all`` or ``qkv``.
    """
    return lambda config: kind if config.flag(key, default=default) else "none"


def must_be_false(key: str) -> Read:
    """Return a function that refuses a configuration in which this key is true.

    The key switches on a variant of the model that is not supported.
    """

    def check(config: Config) -> dict[str, Any]:
        if config.flag(key):
            raise InvalidInput(
                key,
                True,
                f"must be false for model_type {config.model_type}, because the variant with it is not supported",
                "false",
            )
        return {}

    return check


def window(default: int | None = None, *, full_every: int | Read | None = None) -> Read:
    """Return a function that reads the size of the attention window and the number of layers that have a window.

    Args:
        default: Window in tokens if the key ``sliding_window`` is missing; None: no layer has a window. If the key is
            present and null, no layer has a window either.
        full_every: Number n if every n-th layer has no window. It is read only if the key ``layer_types`` does not list
            the kind of each layer. None or 0: all layers have a window.
    """

    def read(config: Config) -> dict[str, int]:
        period = full_every(config) if callable(full_every) else full_every
        num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
        size = config.count("sliding_window") if "sliding_window" in config.document else default or 0
        if kinds is None:
            windowed = num_layers - (num_layers // period if period else 0)
        else:
            windowed = kinds[:num_layers].count("sliding_attention")
        return {"attention_window": size, "num_windowed_layers": windowed} if size and windowed else {}

    return read


# ---------------------------------------------------------------- shapes that Llama and its descendants share
_EACH_HEAD_ITS_OWN = frozenset(
    {
        *("llama", "llava", "llava_next", "granite", "granitemoe", "granitemoeshared", "olmo", "olmo2", "olmo3"),
        *("olmoe", "phi", "phi3", "cohere", "cohere2", "hunyuan_v1_dense", "arcee", "gpt_neox"),
    }
)
"""Model types for which a missing number of key and value heads means one per query head, and not a model's own
default."""


def _num_kv_heads(config: Config) -> int:
    key = "num_key_value_heads"
    is_default = key in config.document or config.model_type in _EACH_HEAD_ITS_OWN
    return config.integer(key, default=config.integer("num_attention_heads") if is_default else None)


def _head_dim(config: Config) -> int:
    return config.integer("head_dim", default=0) or per_head(config, "hidden_size", "num_attention_heads")


def per_head(config: Config, hidden: str, heads: str) -> int:
    """Return the width of one attention head: the hidden size divided by the number of heads.

    Args:
        config: The configuration to read.
        hidden: Key of the hidden size; several spellings are separated by spaces.
        heads: Key of the number of heads, in the same form.
    """
    hidden_size, num_heads = config.integer(*hidden.split()), config.integer(*heads.split())
    if hidden_size % num_heads:
        nearest = nearest_divisor(num_heads, hidden_size)
        raise InvalidInput("num_attention_heads", num_heads, f"must divide hidden_size ({hidden_size})", nearest)
    return hidden_size // num_heads


def untold_modules(config: Config) -> tuple[str, ...]:
    """Return a sentence about parts of the model (vision, audio) that are not counted; empty if there are none."""
    which = " and ".join(word for word in ("vision", "audio") if config.has(f"{word}_config"))
    sentence = (
        f"only the language model is counted and predicted, without the {which} tower and the "
        "layers that connect it: training takes longer and needs more memory if these parts are trained too"
    )
    return (sentence,) if which else ()


def _left_out(config: Config) -> tuple[str, ...]:
    """Return sentences about the parts of a model that are not counted in any family."""
    num_ahead = config.count("num_nextn_predict_layers", "mtp_num_hidden_layers")
    sentence = (
        f"layers of multi-token prediction ({num_ahead}) are not counted or predicted: "
        "training takes longer and needs more memory"
    )
    return ((sentence,) if num_ahead else ()) + untold_modules(config)


_SHAPES = family(
    hidden_size=integer("hidden_size"),
    num_heads=integer("num_attention_heads"),
    num_layers=integer("num_hidden_layers"),
    num_kv_heads=_num_kv_heads,
    vocab_size=integer("vocab_size"),
    tied_embeddings=flag("tie_word_embeddings"),
    head_dim=_head_dim,
    ffn_size=integer("intermediate_size"),
    left_out=_left_out,
)
