"""Support: how much of a prediction is measured, borrowed from other hardware or software, or assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from autotuner.catalog.hardware import accelerator_facts, accelerators, load_accelerator, load_cluster
from autotuner.catalog.kernels import BorrowedConstant, borrowed_constants
from autotuner.catalog.software import Compared, StackProfile, comparisons, load_stack, stack_profiles, stacks
from autotuner.core.accelerator import Accelerator
from autotuner.core.caveat import Caveat
from autotuner.core.choices import NARROW_PRECISIONS
from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.value import value
from autotuner.costmodel.evidence import NAMES, Evidence, Subject, Where
from autotuner.search.caveats import approximations


class SupportLevel(StrEnum):
    """The closest measured runs that predictions for an accelerator and a software stack were compared with."""

    MEASURED = "measured"  # runs of this stack on this accelerator
    BORROWED = "borrowed"  # only runs of other stacks on this accelerator, or of other kinds of models
    ASSUMED = "assumed"  # no runs on this accelerator, or of this kind of model


_LEVELS = {
    Where.HERE: SupportLevel.MEASURED,
    Where.ELSEWHERE: SupportLevel.BORROWED,
    Where.NOWHERE: SupportLevel.ASSUMED,
}


@value
class PairSupport:
    """The measured runs behind predictions for one accelerator and one software stack."""

    accelerator: str
    """Name of the accelerator in the catalog."""
    stack: str
    """Name of the software stack in the catalog."""
    level: SupportLevel
    """The closest runs that predictions were compared with."""
    measured: tuple[Compared, ...] = ()
    """Measured runs of this stack on this accelerator, by kind of model. With a model in the question, only runs of its
    kind."""


@value
class SupportDetails:
    """The origin of what a prediction for an accelerator and a software stack uses besides measured runs of both."""

    peak_source: str
    """Source and date of the peak rates of the accelerator."""
    software: StackProfile
    """Origin of the constants of the stack, without its runs."""
    elsewhere: tuple[Compared, ...] = ()
    """If no run was measured with this stack on this accelerator: runs of other stacks on it, or else of this stack on
    other accelerators."""
    borrowed: tuple[BorrowedConstant, ...] = ()
    """Constants that were measured on another device or network."""
    borrowed_choices: tuple[str, ...] = ()
    """Properties of layouts that were only compared with runs of other stacks, or on other accelerators."""
    assumed: tuple[BorrowedConstant, ...] = ()
    """Constants that nobody measured, each with the assumption behind it."""
    assumed_choices: tuple[str, ...] = ()
    """Properties of models and layouts whose formulas were never compared with a measured run."""
    approximated: tuple[Caveat, ...] = ()
    """Features of the model that predictions replace by simpler ones."""


@value
class Support:
    """The answer to the question how much of a prediction is measured, borrowed or assumed."""

    model: str = ""
    """Name of the model; empty: all models."""
    pairs: tuple[PairSupport, ...]
    """Every asked pair of an accelerator and a software stack."""
    details: SupportDetails | None = None
    """More about the pair, if it is the only one."""


def support(model: TransformerSpec | None = None, accelerator: str = "", stack: str = "") -> Support:
    """Return what is measured, borrowed and assumed in predictions for accelerators and software stacks.

    Args:
        model: The model; None: all models.
        accelerator: Name or alias of an accelerator of the catalog; empty: all accelerators.
        stack: Name of a software stack of the catalog; empty: all stacks.

    Raises:
        NotFound: The catalog has no accelerator or stack of that name. The error suggests the most similar name.
    """
    devices = (load_accelerator(accelerator).name,) if accelerator else accelerators()
    software = (load_stack(stack).name,) if stack else stacks()
    found = [Evidence.of_names(one, device, model) for device in devices for one in software]
    return Support(
        model=model.name if model else "",
        pairs=tuple(_pair(one, model) for one in found),
        details=_details(found[0], model) if accelerator and stack else None,
    )


def _pair(evidence: Evidence, model: TransformerSpec | None) -> PairSupport:
    where = evidence.base if model is None else max(evidence.base, evidence.of_kind)
    runs = _of_kind(evidence.here, evidence, model)
    return PairSupport(accelerator=evidence.device, stack=evidence.stack, level=_LEVELS[where], measured=_named(runs))


def _details(evidence: Evidence, model: TransformerSpec | None) -> SupportDetails:
    device, stack = load_accelerator(evidence.device), load_stack(evidence.stack)
    profile = next(one for one in stack_profiles() if one.name == stack.name)
    constants = _constants(device, stack)
    used = [(one.name, where) for one, where in evidence.less_known if _is_offered(one, device, stack)]
    of_model = evidence.never_of_job if model else ()
    return SupportDetails(
        peak_source=device.peak_source,
        software=replace(profile, compared=()),
        elsewhere=_named(_elsewhere(evidence, model)),
        borrowed=tuple(one for one in constants if not _is_assumed(one)),
        borrowed_choices=tuple(name for name, where in used if where == Where.ELSEWHERE),
        assumed=tuple(one for one in constants if _is_assumed(one)),
        assumed_choices=(*of_model, *(name for name, where in used if where == Where.NOWHERE)),
        approximated=approximations(model) if model else (),
    )


# ---------------------------------------------------------------- runs
def _of_kind(runs: Iterable[Compared], evidence: Evidence, model: TransformerSpec | None) -> tuple[Compared, ...]:
    return tuple(one for one in runs if model is None or one.model == evidence.kind)


def _elsewhere(evidence: Evidence, model: TransformerSpec | None) -> Sequence[Compared]:
    """Return the closest runs if none was measured with this stack on this accelerator with this kind of model."""
    if _of_kind(evidence.here, evidence, model):
        return ()
    known = _of_kind(comparisons().values(), evidence, model)
    on_device = [one for one in known if one.device == evidence.device]
    return on_device or [one for one in known if one.stack == evidence.stack]


def _named(runs: Iterable[Compared]) -> tuple[Compared, ...]:
    """Return the comparisons with the texts of answers in the place of the words that the catalog counts runs by."""
    return tuple(
        replace(one, options={NAMES.get(word, word): count for word, count in one.options.items()}) for one in runs
    )


# ---------------------------------------------------------------- constants and choices
def _constants(device: Accelerator, stack: Stack) -> tuple[BorrowedConstant, ...]:
    """Return the constants that were not measured on this accelerator and its links, for all that the stack can run."""
    precisions = [one for one in device.precisions if stack.multiplies_fp8 or one not in NARROW_PRECISIONS]
    kernels = [one for one in device.attention_kernels if one in stack.attention_kernels]
    return borrowed_constants(_beyond_a_domain(device.name), precisions, kernels)


def _beyond_a_domain(device: str) -> Cluster:
    """Return the smallest usual cluster of this accelerator that uses its links within nodes and between nodes."""
    facts = accelerator_facts(device)
    per_node = facts["accelerators_per_node"].value
    domain = facts["nvlink_domain"].value if "nvlink_domain" in facts else per_node
    return load_cluster(f"{device}:{domain // per_node + 1}x{per_node}")


def _is_assumed(one: BorrowedConstant) -> bool:
    """Return True if the origin of the constant calls itself an assumption."""
    return "assum" in one.origin


def _is_offered(one: Subject, device: Accelerator, stack: Stack) -> bool:
    """Return True if the stack can run a layout with this property on the device."""
    match one.option:
        case "attention_kernel":
            return one.value in device.attention_kernels and one.value in stack.attention_kernels
        case "pipeline_schedule":
            return one.value in stack.pipeline_schedules
        case "precision":
            return one.value in device.precisions
    return True
