"""Names in a request, and the function that replaces them by the named objects.

A request may name models and clusters of the catalog or of the store, at any depth. ``resolve`` calls a function of the
caller for each name, so that all later code meets objects only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from autotuner.core.cluster import Cluster
from autotuner.core.documents import Name, named_thing
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile

T = TypeVar("T")

Described = TypeVar("Described", TransformerSpec, Cluster, DeviceProfile)

KINDS: Mapping[type, str] = {TransformerSpec: "model", Cluster: "cluster", DeviceProfile: "profile"}
"""Types of objects that callers store under names, each with its word for messages."""


class StoredNames(Protocol):
    """A reader of objects that callers have stored under names. Predictions need nothing else from the store."""

    def get(self, cls: type[Described], name: str) -> Described:
        """Return the object of this type that is stored under this name; raise ``NotFound`` if there is none."""
        ...


def cluster_profile(names: StoredNames, cluster: str) -> DeviceProfile | None:
    """Return the profile that a check of this stored cluster measured; None if the cluster was not checked.

    Args:
        names: Reader of stored objects.
        cluster: Name of the cluster.
    """
    try:
        profile = names.get(DeviceProfile, cluster)
    except NotFound:
        return None
    return profile if profile.cluster == cluster else None


def resolved(given: T | str) -> T:
    """Return the object in a request's field of type ``object | str``, and narrow the type to the object.

    All names in the request must have been replaced by objects before; otherwise an assertion fails.
    """
    assert not isinstance(given, str), f"nobody resolved {given!r}"
    return given


# ---------------------------------------------------------------- the walk
Load: TypeAlias = Callable[[type[Any], Any, str], Any]
"""A function that returns the object for a field. Its arguments are the field's type, the field's content (a name or an
object), and the path of the field."""


def resolve(request: T, load: Load) -> T:
    """Return a request with the value of every ``Named`` field, at all depths, replaced by the result of ``load``.

    Args:
        request: A dataclass value.
        load: Function that returns the object; its arguments are the object's type, the given name or object, and the
            path of the field.

    Raises:
        InvalidInput: ``load`` raised it. For a request inside the request, the error gets the whole path.
        NotFound: ``load`` raised it, because nothing has the name.
    """
    found = {
        name: _loaded(hint, given, name, load)
        for name, hint in _names_of(type(request)).items()  # type: ignore[arg-type]  # a class is hashable
        if (given := getattr(request, name)) is not None
    }
    return replace(request, **found) if found else request  # type: ignore[type-var]  # it is a dataclass


def names_in(request: Any) -> tuple[tuple[type[Any], str], ...]:
    """Return all names that occur in a request, each with the type of the object that it names."""
    found: list[tuple[type[Any], str]] = []

    def note(cls: type[Any], given: Any, _: str) -> Any:
        if isinstance(given, str):
            found.append((cls, given))
        return given

    resolve(request, note)
    return tuple(found)


def _loaded(hint: Any, given: Any, path: str, load: Load) -> Any:
    if (cls := named_by(hint)) is not None:
        return load(cls, given, path)
    if isinstance(given, tuple):
        item = _unwrapped(get_args(hint)[0])
        return tuple(_loaded(item, one, f"{path}.{number}", load) for number, one in enumerate(given))
    try:
        return resolve(given, load)
    except InvalidInput as error:
        raise error.under(path) from error


@cache
def _names_of(cls: type[Any]) -> Mapping[str, Any]:
    """Return the fields of a dataclass that may hold names, with their types."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _unwrapped(hint) for name, hint in hints.items() if _holds_names(_unwrapped(hint))}


def _holds_names(hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return _holds_names(_unwrapped(get_args(hint)[0]))
    return named_by(hint) is not None or (isinstance(hint, type) and is_dataclass(hint) and bool(_names_of(hint)))


def _unwrapped(hint: Any) -> Any:
    """Return a type without ``None`` in its union, and without annotations other than ``Name``."""
    if named_by(hint) is not None:
        return hint
    if get_origin(hint) is Annotated:
        return _unwrapped(get_args(hint)[0])
    inner = [each for each in get_args(hint) if each is not NoneType]
    return _unwrapped(inner[0]) if NoneType in get_args(hint) and len(inner) == 1 else hint


def named_within(hint: Any) -> type[Any] | None:
    """Return the type of the object whose name a field takes; None if the field takes no name.

    Unlike ``named_by``, this function also looks inside an optional type (``X | None``) and below other marks.

    Args:
        hint: Type annotation of the field.
    """
    return named_by(_unwrapped(hint))


def named_by(hint: Any) -> type[Any] | None:
    """Return the type of the object whose name a field takes; None if the annotation is not marked with ``Name``.

    Only the outermost marks of the annotation count.

    Args:
        hint: Type annotation of the field.
    """
    if not any(isinstance(mark, Name) for mark in getattr(hint, "__metadata__", ())):
        return None
    return named_thing(get_args(hint)[0])
