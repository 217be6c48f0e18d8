"""Reads the candidates of a comparison: trials, sweeps, layouts in words, and a trainer's command-line flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotuner.api.dashboard.views.address import Permalink
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import require_legal
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.costmodel.predict import predict_one
from autotuner.exports.formats import read
from autotuner.search.results.layout_comparison import LETTERS, LayoutCandidate
from autotuner.search.results.reached import Standing, standings
from autotuner.search.space.moves import arrange
from autotuner.service.build import App
from autotuner.store.options import Page

_ID = re.compile(r"sw-[a-z0-9]{1,40}(-[0-9]{1,12})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The layouts that a page compares, and the words of its address that name no layout."""

    asked: tuple[LayoutCandidate, ...]
    problems: tuple[tuple[str, AutotunerError], ...]
    """Words that cannot be compared, each with the error that says why."""


def asked_about(app: App, of: Sequence[str], flags: str = "") -> Compared:
    """Return the layouts to compare that the given words name, at most four, and the words that name no layout.

    Args:
        app: The application, in whose store the trials, sweeps and jobs are looked up.
        of: Words, each naming one layout: the id of a trial, the id of a sweep (for the sweep's best trial), the
            address of a layout on the page ``/explore``, or a layout as tables print it. Empty and repeated words are
            ignored.
        flags: Configuration of a trainer, whose layout is compared too; empty: none.
    """
    reader = _Reader(app)
    found: list[LayoutCandidate] = []
    problems: list[tuple[str, AutotunerError]] = []
    for word in dict.fromkeys(one.strip() for one in of if one.strip()):
        try:
            found.append(reader.read(word, found))
        except AutotunerError as error:
            problems.append((word, error))
    if flags.strip():
        try:
            found.append(reader.imported(flags, found))
        except AutotunerError as error:
            problems.append(("your flags", error))
    most = len(LETTERS)
    rule = f"is one layout too many: at most {most} layouts can be compared"
    problems += [(one.name, InvalidInput("of", one.of[:60], rule, most)) for one in found[most:]]
    return Compared(asked=tuple(found[:most]), problems=tuple(problems))


class _Reader:
    """Reads one word after the other; a layout in words belongs to the job of the candidate before it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._standings: dict[str, Mapping[str, Standing]] = {}
        self._sweeps: dict[str, Sweep] = {}

    def read(self, word: str, before: Sequence[LayoutCandidate]) -> LayoutCandidate:
        """Return the candidate that a word names.

        Raises:
            InvalidInput: The word names nothing that can be compared.
            NotFound: Nothing is stored under this id.
        """
        if word.startswith("/explore"):
            return self._explored(word)
        if _ID.fullmatch(word):
            return self._of_trial(self._trial(word))
        return self._in_words(word, before)

    def imported(self, flags: str, before: Sequence[LayoutCandidate]) -> LayoutCandidate:
        """Return the layout of a trainer's flags as a candidate, for the job of the candidate before it."""
        job = _job_before(before, "your flags")
        reading = self._app.compute.ask(read, flags, None, job.cluster.world_size)
        return replace(self._predicted(reading.layout, job, "your flags", self._link(before[0])), notes=reading.notes)

    def _trial(self, word: str) -> Trial:
        try:
            return self._app.store.get_trial(word)
        except NotFound:
            self._app.store.get_sweep(word)
        ranked, _ = self._app.store.ranking(word, page=Page(limit=1))
        if not ranked:
            raise InvalidInput(
                "of", word, "is a sweep without a ranked trial; wait until a trial is measured, or name a trial"
            )
        return ranked[0]

    def _of_trial(self, trial: Trial) -> LayoutCandidate:
        sweep = self._app.informed(self._app.store.get_sweep(trial.sweep_id))
        standing = self._standing(trial)
        ids = list(self._standings[trial.sweep_id])
        request = sweep.request
        self._sweeps[sweep.id] = sweep
        return LayoutCandidate(
            layout=trial.layout,
            job=request.trial_job,
            prediction=trial.prediction,
            trial=trial,
            standing=standing if trial.proxy is None else None,
            of=trial.id,
            name=f"trial {trial.number}",
            rank=ids.index(trial.id) + 1 if standing else None,
        )

    def _standing(self, trial: Trial) -> Standing | None:
        if trial.sweep_id not in self._standings:
            self._standings[trial.sweep_id] = standings(self._app.store.ranked_times(trial.sweep_id))
        return self._standings[trial.sweep_id].get(trial.id)

    def _explored(self, address: str) -> LayoutCandidate:
        link = Permalink.read(address)
        if link.layout is None:
            raise InvalidInput(
                "of", address, "must contain the field layout; open a layout on the page /explore and copy its address"
            )
        found = self._predicted(link.layout, link.job(self._app), "explored", link)
        return replace(found, of=link.with_layout(found.layout).to("/explore"))

    def _in_words(self, word: str, before: Sequence[LayoutCandidate]) -> LayoutCandidate:
        job = _job_before(before, word)
        return self._predicted(Layout.parse(word), job, "a layout", self._link(before[0]))

    def _link(self, of: LayoutCandidate) -> Permalink:
        """Return a link to the job of an earlier candidate."""
        if of.trial is not None:
            return Permalink.of_sweep(self._sweeps[of.trial.sweep_id])
        return Permalink.of_query(of.explored)

    def _predicted(self, layout: Layout, job: Job, name: str, link: Permalink) -> LayoutCandidate:
        layout = arrange(layout, job)
        require_legal(layout, job)
        prediction = predict_one(layout, job)
        explored = link.with_layout(layout).asked
        return LayoutCandidate(
            layout=layout, job=job, prediction=prediction, of=str(layout), name=name, explored=explored
        )


def _job_before(before: Sequence[LayoutCandidate], word: str) -> Job:
    if not before:
        rule = (
            "is a layout without a job; before it, name a trial, a sweep or the address of an explored layout, "
            "whose job is used"
        )
        raise InvalidInput("of", word[:60], rule)
    return before[0].job
