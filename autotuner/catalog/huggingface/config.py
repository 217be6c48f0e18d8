"""Config: typed access to a ``config.json``, and readers that fill the fields of a model from one.

A family of models is a table: each field of the model is a value, or a reader that takes it from the document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

T = TypeVar("T")

_LARGEST = 2**40
"""Maximum of every dimension of a model."""

_MOST_LAYERS = 100_000
"""Maximum length of a list of layers."""

_FALLS_BACK = "a kernel that does not support {} falls back to one that keeps its scores in memory"
ALIBI = "positions are biases of the scores (ALiBi), priced as a rotation: " + _FALLS_BACK.format("them")
SOFT_CAP = "scores are capped by a hyperbolic tangent, priced without: " + _FALLS_BACK.format("it")


@dataclass(frozen=True, slots=True)
class Config:
    """A parsed document, read key by key; of several spellings of a key the first one that is there counts.

    ``null`` counts as missing. Every method raises ``InvalidInput`` with the key of a value that does not fit.
    """

    document: Mapping[str, Any]

    @property
    def model_type(self) -> object:
        """The document's name for its kind of model."""
        return self.document.get("model_type")

    def has(self, key: str) -> bool:
        """Return True where the key is there and not null."""
        return self.document.get(key) is not None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """Return a whole number above zero."""
        key, value = self._first(keys)
        if value is None:
            if default is None:
                raise InvalidInput(key, None, f"is required for model_type {self.model_type}")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            raise InvalidInput(key, value, f"must be a whole number above 0, and at most {_LARGEST:,}", 1)
        return value

    def count(self, *keys: str, default: int = 0) -> int:
        """Return a whole number, zero allowed."""
        _, value = self._first(keys)
        if value is None:
            return default
        return 0 if value == 0 and type(value) is int else self.integer(*keys)

    def stated(self, *keys: str) -> int:
        """Return a whole number, where null means zero and the key has to be there: its default is another."""
        if not any(key in self.document for key in keys):
            raise InvalidInput(keys[0], None, f"is required for model_type {self.model_type}, and may be null")
        return self.count(*keys)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return True or False."""
        key, value = self._first(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(key, value, "must be true or false")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a list of words, such as the kind of each layer; None where there is none."""
        return self._list(key, str, "words")

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers, such as those of some layers; empty where there is none."""
        return self._list(key, int, "whole numbers") or ()

    def inner(self, key: str) -> Config | None:
        """Return the document inside the document, such as that of the language model; None where there is none."""
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
"""A function that reads the value of a field; one that returns a dict gives several fields, or none."""

Table: TypeAlias = Mapping[str, Any]
"""Values and readers by field. A reader of several fields, or a check, stands under a name of its own."""


def family(*bases: Table, **fields: Any) -> Table:
    """Return a table of some fields, followed by those of other tables that it does not replace."""
    return fields | {field: entry for base in bases for field, entry in base.items() if field not in fields}


def read_fields(config: Config, table: Table) -> dict[str, Any]:
    """Return the value of every field, read in the order of the table; the first value of a field counts."""
    values: dict[str, Any] = {}
    for field, entry in table.items():
        if field not in values:
            value = entry(config) if callable(entry) else entry
            values |= value if isinstance(value, dict) else {field: value}
    return values


def read_model(config: Config, name: str, table: Table) -> TransformerSpec:
    """Return the model of a family; a table without ``hidden_size`` takes the fields that it lacks from Llama's.

    Raises:
        InvalidInput: A field is missing or does not fit; it names the field.
    """
    values = read_fields(config, table if "hidden_size" in table else family(_SHAPES, **table))
    approximations = (*values.pop("approximations", ()), *values.pop("left_out", ()))
    return TransformerSpec(name=name, approximations=approximations, **values)


def _reader(read: Callable[..., Any]) -> Callable[..., Read]:
    """Return a maker of readers, which takes the arguments that a method of ``Config`` takes."""
    return lambda *keys, **default: lambda config: read(config, *keys, **default)


integer, count, stated, flag = map(_reader, (Config.integer, Config.count, Config.stated, Config.flag))


def bias(key: str = "attention_bias", *, default: bool = False, kind: str = "all") -> Read:
    """Return a reader of the attention projections that carry a bias where the key is true."""
    return lambda config: kind if config.flag(key, default=default) else "none"


def must_be_false(key: str) -> Read:
    """Return a check of a switch whose shapes are not read."""

    def check(config: Config) -> dict[str, Any]:
        if config.flag(key):
            raise InvalidInput(key, True, f"must be false for model_type {config.model_type}", "false")
        return {}

    return check


def window(default: int | None = None, *, full_every: int | Read | None = None) -> Read:
    """Return a reader of the window of attention and the number of layers that have it.

    Args:
        default: Window where the key is missing; None: no layer has one. A key that is null says so, too.
        full_every: Where no list tells the kind of each layer, every n-th has none; None or 0: all have it.
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
"""Types that read a missing number of heads of keys as that of queries, and not as some model's."""


def _num_kv_heads(config: Config) -> int:
    key = "num_key_value_heads"
    is_default = key in config.document or config.model_type in _EACH_HEAD_ITS_OWN
    return config.integer(key, default=config.integer("num_attention_heads") if is_default else None)


def _head_dim(config: Config) -> int:
    return config.integer("head_dim", default=0) or per_head(config, "hidden_size", "num_attention_heads")


def per_head(config: Config, hidden: str, heads: str) -> int:
    """Return the width of a head where heads span the hidden size; a space parts several spellings of a key."""
    hidden_size, num_heads = config.integer(*hidden.split()), config.integer(*heads.split())
    if hidden_size % num_heads:
        raise InvalidInput("num_attention_heads", num_heads, f"must divide hidden_size ({hidden_size})")
    return hidden_size // num_heads


def untold_modules(config: Config) -> tuple[str, ...]:
    """Return sentences on the modules that the document describes beside the language model."""
    which = " and ".join(word for word in ("vision", "audio") if config.has(f"{word}_config"))
    sentence = (
        f"only the language model is counted and priced, without the {which} tower and what joins them: training "
        "these too takes longer and more memory"
    )
    return (sentence,) if which else ()


def _left_out(config: Config) -> tuple[str, ...]:
    """Return sentences on the parts of any family that are not counted."""
    num_ahead = config.count("num_nextn_predict_layers", "mtp_num_hidden_layers")
    sentence = (
        f"{num_ahead} {'layer' if num_ahead == 1 else 'layers'} of multi-token prediction neither counted nor priced: "
        "training it takes longer and more memory"
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
