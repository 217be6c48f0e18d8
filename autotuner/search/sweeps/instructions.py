"""What a plan has its sweep do next."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.convergence_gate import GateResult
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.sweep import Prospects
from autotuner.core.trial import ScaledTrial, Trial
from autotuner.search.sweeps.stopping import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """Try this layout.

    Attributes:
        stored: The interrupted trial to try again, or None for a new one.
        scaled: What runs in its place, where trials have fewer ranks than their job.
        repeats: Number of the trial whose layout it runs again, to be compared; None: it is the first of its layout.
        prospects: What the search expected when it chose the layout; None where it did not.
        note: What who follows should know of the choice; empty where there is nothing special.
    """

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None
    scaled: ScaledTrial | None = None
    repeats: int | None = None
    prospects: Prospects | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Run a layout again by itself, to be compared.

    Attributes:
        repeats: Number of its first trial that was measured; None: it has none yet.
    """

    layout: Layout
    repeats: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGate:
    """Train what ran as a complete trial beside ``reference``, and compare their losses.

    Attributes:
        known: What the gate of another trial says of this one, so that nothing has to be trained.
    """

    trial: Trial
    reference: Layout
    known: GateResult | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing new may begin until something that runs has ended."""


Instruction = RunTrial | RunGate | Wait | Finish
