"""Previews of sweeps, the last of them kept: who fills a form in asks for nearly the same again and again."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import replace

from api.schemas.previews import SweepPreview
from autotuner.core.codec import to_plain
from autotuner.core.documents import violation
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep import SweepRequest
from autotuner.search.preview import Outlook, outlook, require_modest
from autotuner.service.build import App

_KEPT = 64
"""Outlooks, a few kilobytes each."""


class Previews:
    """What sweeps would search; that of equal jobs and spaces is computed once."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._outlooks: OrderedDict[str, Outlook | InvalidInput] = OrderedDict()
        self._lock = threading.Lock()

    def preview(self, app: App, request: SweepRequest, *, with_remedies: bool = True) -> SweepPreview:
        """What the sweep would search; where nothing fits, what would help takes longest, and may be left out.

        Raises:
            InvalidInput: It holds no layout that a trial can run, or a number is beyond use.
        """
        require_modest(request)
        known = self._informed(app, request)
        refused = app.refusal(request)
        refusal = None if refused is None else violation(refused)
        return SweepPreview.of(known, self._outlook(app, known, with_remedies), refusal)

    def _informed(self, app: App, request: SweepRequest) -> SweepRequest:
        """With what the stored trials say of the job's speed, where they may."""
        if not request.uses_history:
            return request
        trainer = None if request.trainer is None else request.trainer.name
        return replace(request, job=app.calibrated(request.job, trainer))

    def _outlook(self, app: App, request: SweepRequest, with_remedies: bool) -> Outlook:
        key = _key(request, with_remedies)
        with self._lock:
            found = self._outlooks.get(key)
        if found is None:
            found = _computed(app, request, with_remedies)
        with self._lock:
            self._outlooks[key] = found
            self._outlooks.move_to_end(key)
            while len(self._outlooks) > self._kept:
                self._outlooks.popitem(last=False)
        if isinstance(found, InvalidInput):
            raise found
        return found


def _computed(app: App, request: SweepRequest, with_remedies: bool) -> Outlook | InvalidInput:
    """The outlook, or what is wrong with the space, which takes as long to find."""
    try:
        return app.asides.search(outlook, request, with_remedies=with_remedies)
    except InvalidInput as refusal:
        return refusal


def _key(request: SweepRequest, *more: object) -> str:
    """Equal for sweeps that search the same, whatever they are called, may cost and measure."""
    searched = (request.trial_job, request.space, request.trainer, request.small_cluster, request.fault_trace, *more)
    return json.dumps(to_plain(searched), sort_keys=True)
