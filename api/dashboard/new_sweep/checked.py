"""What comes of a form: what is wrong beside its input, or what the sweep would search and how else to ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from api.dashboard.new_sweep.given import Given, body_of
from api.dashboard.new_sweep.inputs import AXES, INPUTS, id_of
from autotuner.core import documents
from autotuner.core.errors import (
    AutotunerError,
    Busy,
    InvalidDocument,
    InvalidInput,
    NotFound,
    TooCostly,
    Violation,
    quoted,
)
from autotuner.core.sweep import SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.search.sweep_preview import SweepPreview
from autotuner.service.build import App

_PART_OF = {"accelerator": "cluster", "link": "cluster", "profile": "cluster"}
"""Inputs by the kinds of what their names lead to."""

_NOT_SEARCHED = frozenset({"budget", "trial", "seed", "name", "objective", "max_parallel_trials"})
"""Parts of the body that change nothing of what a sweep searches, but for the memory that its trials may use."""

_WHOLE = ("model", "cluster", "space")
"""Fields that several elements set, with a place for what is wrong beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with an input."""

    at: str
    """Path of the input; empty where it is about none."""
    text: str
    """A sentence without its full stop."""

    @property
    def id(self) -> str:
        """Of the element to go to."""
        return id_of(self.at)

    @property
    def label(self) -> str:
        """What the input is called on the page."""
        if self.at in INPUTS:
            return INPUTS[self.at].label
        name = self.at.removeprefix("space.")
        return AXES[name].label if name in AXES else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What comes of a form."""

    given: Given
    body: dict[str, Any]
    """Of ``POST /sweeps``; empty where a description cannot be read."""
    complaints: tuple[Complaint, ...]
    request: SweepRequest | None = None
    """None where something is wrong."""
    shown: SweepRequest | None = None
    """What the preview is of: the request, or it without what is wrong and changes no search."""
    preview: SweepPreview | None = None
    """None where something else is wrong, or the answer would take too long."""

    def at(self, path: str) -> str:
        """What is wrong with an input; empty where nothing is."""
        return "; ".join(one.text for one in self.complaints if one.at == path)

    def having(self, *complaints: Complaint) -> Checked:
        """With more that is wrong."""
        return replace(self, complaints=(*self.complaints, *complaints))


def checked(given: Given, app: App, *, with_remedies: bool = True) -> Checked:
    """What comes of the form, without starting anything; what would help where nothing fits may be left for later."""
    found = read(given, app)
    shown = found.request or _searched(found, app)
    if shown is None:
        return found
    try:
        preview = app.preview(shown, with_remedies=with_remedies)
    except (InvalidInput, NotFound, TooCostly, Busy) as error:
        return replace(found, shown=shown).having(complaint_of(error))
    refusal = () if preview.refusal is None else (_elsewhere(_complaint(preview.refusal)),)
    return replace(found, shown=shown, preview=preview).having(*refusal)


def _elsewhere(refusal: Complaint) -> Complaint:
    """What this machine cannot try, with who else might."""
    if refusal.at != "cluster":
        return refusal
    return replace(
        refusal, text=f"{refusal.text}. An engine may run its trials, or they are simulated: say what runs them"
    )


def _searched(found: Checked, app: App) -> SweepRequest | None:
    """The sweep without what is wrong, where that changes nothing of what would be searched."""
    wrong = {one.at.partition(".")[0] for one in found.complaints}
    if not wrong or not wrong <= _NOT_SEARCHED:
        return None
    body = {name: value for name, value in found.body.items() if name not in wrong}
    try:
        return app.sweep(documents.read(SweepCreate, body))
    except (InvalidInput, NotFound, TooCostly, Busy):
        return None


def read(given: Given, app: App) -> Checked:
    """The sweep that the form asks for, or what is wrong with it."""
    try:
        body = body_of(given)
    except InvalidInput as error:
        return Checked(given=given, body={}, complaints=(complaint_of(error),))
    try:
        request = app.sweep(documents.read(SweepCreate, body))
    except InvalidDocument as error:
        return Checked(given=given, body=body, complaints=_complaints(map(documents.violation, error.complaints)))
    except (InvalidInput, NotFound, TooCostly, Busy) as error:
        return Checked(given=given, body=body, complaints=(complaint_of(error),))
    return Checked(given=given, body=body, complaints=(), request=request)


def complaint_of(error: AutotunerError) -> Complaint:
    """What an error says of the form."""
    match error:
        case InvalidInput():
            return _complaint(documents.violation(error))
        case NotFound():
            near = "" if error.nearest is None else f"; did you mean {error.nearest}?"
            return Complaint(
                at=_input_at(_PART_OF.get(error.kind, error.kind)),
                text=f"no {error.kind} is called {quoted(error.key)}{near}",
            )
    return Complaint(at="", text=str(error))


def _complaints(found: Iterable[Violation]) -> tuple[Complaint, ...]:
    return tuple(dict.fromkeys(map(_complaint, found)))


def _complaint(one: Violation) -> Complaint:
    at = _input_at(one.field)
    if not at:
        return Complaint(at="", text=str(one))
    inside = one.field.removeprefix(at).strip(".")
    where = f"{inside}: " if inside and at in _WHOLE else ""
    return Complaint(at=at, text=f"{where}{one.rule}{_nearest(one, at)}")


def _nearest(one: Violation, at: str) -> str:
    if one.nearest is None:
        return ""
    typed = INPUTS[at].shown(one.nearest) if at in INPUTS else one.nearest
    return f"; nearest legal value: {typed}"


def _input_at(field: str) -> str:
    """The input that sets a field of the body, or the object that holds it."""
    known = {*INPUTS, *_WHOLE, *(axis.path for axis in AXES.values())}
    parts = field.split(".")
    paths = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((path for path in paths if path in known), "")
