"""Spaces of registered trainers and formats: the layouts that a trainer can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autotuner.core.choices import ExportFormat
from autotuner.core.documents import extended
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.rule import Rule, any_of, fields_read
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace, default_space, default_trial_space, exchange_ladder
from autotuner.search.space.elimination import explain_empty
from autotuner.search.space.legal import legal_layouts

if TYPE_CHECKING:
    from autotuner.core.trial_spec import Trainer, TrainerOffer
    from autotuner.exports.shared.target import Target

_REST = "data_parallel_replicate_degree"
"""Name of the field without an axis. It takes the ranks that the other fields leave, so that only a rule can fix it."""

_AXES = tuple(name for name in OPTIONS if name != _REST)

Axes = Mapping[str, tuple[int, ...] | None]


def _target_of(name: str) -> Target:
    from autotuner.exports.formats import target_of  # noqa: PLC0415  # every trainer's format: most predictions ask none

    return target_of(name)


def trial_rules(trainer: Trainer | None) -> tuple[Rule, ...]:
    """Return the rules that a layout must keep so that a trial can run it. A sweep leaves out all other layouts.

    Args:
        trainer: The registered trainer that runs trials; None: the product's own training code.
    """
    if trainer is None:
        return (*RULES, *TRIAL_RULES)
    return (*RULES, *trainer_rules(trainer, _target_of(trainer.format)))


def trial_space(job: Job, trainer: Trainer | None, axes: Axes, *, is_gated: bool = True) -> SearchSpace:
    """Return the space that a sweep searches: the caller's values for some options, default values for all others.

    If the caller asks for lossy gradient exchanges but gives no values for their details, the space has several values
    for these details.

    Args:
        job: The job, with the software stack of the trainer.
        trainer: The registered trainer; None: the product's own training code.
        axes: Values that the caller gave, by option.
        is_gated: True if a convergence gate runs before a layout that is not numerically equivalent gets a rank. A
            convergence gate is a short training that compares losses. If False, such layouts are left out of the
            default values.

    Raises:
        InvalidInput: The trainer has no setting for a value that the caller gave.
    """
    if trainer is None:
        return default_trial_space(job, is_gated=is_gated).with_axes(**exchange_ladder(axes)).with_axes(**axes)
    return trainer_space(job, trainer, _target_of(trainer.format), axes, is_gated=is_gated)


def sayable_space(
    job: Job, wanted: ExportFormat, axes: Axes, current: Layout | None = None
) -> tuple[SearchSpace, tuple[Rule, ...]]:
    """Return a space whose layouts can all be exported to a format, and the rules that these layouts must keep.

    Args:
        job: The job, with the software stack of the format.
        wanted: The export format.
        axes: Values that the caller gave, by option.
        current: The layout that runs today; None: unknown. The format leaves some options to the user's own code. These
            options keep their values from the current layout. For all other options without values from the caller, the
            value from the current layout is tried too.

    Raises:
        InvalidInput: The format cannot express a value that the caller gave.
    """
    if not wanted.is_of_a_trainer:
        space, rules = trial_space(job, None, axes), trial_rules(None)
    else:
        from autotuner.core.trial_spec import Trainer  # noqa: PLC0415  # as in ``_target_of``

        target = _target_of(wanted)
        fixed = (
            {name: OPTIONS[name].to_plain(getattr(current, name)) for name in target.decided_elsewhere}
            if current
            else {}
        )
        trainer = Trainer(name=wanted.value, format=wanted, stack=job.stack.name, fixed=fixed)
        space, rules = trainer_space(job, trainer, target, axes), trial_rules(trainer)
    return (_holding(current, space, axes) if current else space), rules


def _holding(layout: Layout, space: SearchSpace, asked: Axes) -> SearchSpace:
    """Return the space with the layout's value on every axis for which the request names no values."""
    own: dict[str, tuple[int, ...]] = {}
    for name in _AXES:
        values, value = space.values(name), getattr(layout, name)
        if name not in asked and values is not None and value not in values:
            own[name] = (*values, value)
    return space.with_axes(**own)


def trainer_rules(trainer: Trainer, target: Target) -> tuple[Rule, ...]:
    """Return rules for the layouts that a trainer can run: its format expresses them, and the trainer supports them.

    If the trainer does not read the number of replicas, one more rule keeps this number fixed.
    """
    rules = (*target.rules, *(_known_rule(trainer, name) for name in trainer.values))
    return rules if trainer.reads(_REST, target.decided_elsewhere) else (*rules, _held_rule(trainer))


def searched_by(trainer: Trainer, target: Target) -> tuple[str, ...]:
    """Return the names of the layout options that a trainer reads. A sweep with this trainer can vary only these."""
    return tuple(name for name in OPTIONS if trainer.reads(name, target.decided_elsewhere))


def offered_by(trainer: Trainer) -> TrainerOffer:
    """Return the description of a trainer for users: its version, and the layout options that a sweep can vary."""
    from autotuner.core.trial_spec import TrainerOffer  # noqa: PLC0415  # predictions need none of it

    target = _target_of(trainer.format)
    return extended(TrainerOffer, trainer, version=target.version, options=searched_by(trainer, target))


def trainer_space(job: Job, trainer: Trainer, target: Target, axes: Axes, *, is_gated: bool = True) -> SearchSpace:
    """Return the space that a sweep searches with a registered trainer: values of the options that the trainer reads.

    Args:
        job: The job, with the software stack of the trainer.
        trainer: The registered trainer.
        target: The export format that the trainer reads.
        axes: Values that the caller gave, by option.
        is_gated: True if a convergence gate (short training that compares losses) runs before a layout that is not
            numerically equivalent gets a rank.

    Raises:
        InvalidInput: The trainer has no setting for a value that the caller gave.
    """
    rules = trainer_rules(trainer, target)
    held = {name: _held(name, trainer, job) for name in _AXES if not trainer.reads(name, target.decided_elsewhere)}
    for name, values in axes.items():
        if name in held and values not in ((held[name],), None):
            plain = OPTIONS[name].to_plain
            rule = (
                f"cannot be chosen, because the trainer {trainer.name} does not read it and its code decides the value"
            )
            raise InvalidInput(f"space.{name}", [plain(one) for one in values or ()], rule, f"[{plain(held[name])}]")
    usual = {name: _sayable(name, job, rules, is_gated=is_gated) for name in _AXES if name not in held}
    usual |= {name: values for name, values in target.default_space.items() if name in usual}
    space = SearchSpace(**usual).with_axes(**axes).with_axes(**{name: (value,) for name, value in held.items()})
    asked = {name: values for name, values in axes.items() if name not in held and values is not None}
    _require_sayable(asked, job, space, rules, trainer)
    return space


def _held_rule(trainer: Trainer) -> Rule:
    replicas = trainer.held(_REST) or 1
    rule = f"the trainer {trainer.name} does not read the number of replicas; it always has {replicas}"
    return Rule(
        "trainer_holds_replicas",
        _REST,
        lambda layout, job: getattr(layout, _REST) != replicas,
        lambda layout, job: f"{rule}, not {getattr(layout, _REST)}",
        lambda layout, job: replicas,
    )


def _known_rule(trainer: Trainer, name: str) -> Rule:
    one, known = OPTIONS[name], trainer.known(name)
    words = ", ".join(str(one.to_plain(value)) for value in known)
    rule = f"the trainer {trainer.name} supports only {words} for {name}"
    return Rule(
        f"trainer_knows_{name}",
        name,
        lambda layout, job: any_of(getattr(layout, name), known) == 0,
        lambda layout, job: f"{rule}, not {one.to_plain(getattr(layout, name))}",
        lambda layout, job: known[0],
    )


def _held(name: str, trainer: Trainer, job: Job) -> int:
    """Return the fixed value of a field that the trainer does not read: the default, if the device supports it."""
    said = trainer.held(name)
    if said is not None:
        return said
    usual, default = default_space(job).values(name), OPTIONS[name].default
    lacks_kernel = name == "attention_kernel" and default not in job.cluster.accelerator.attention_kernels
    lacks_format = name == "precision" and usual is not None and default not in usual
    return usual[0] if usual and (lacks_kernel or lacks_format) else default


def _sayable(name: str, job: Job, rules: Sequence[Rule], *, is_gated: bool) -> tuple[int, ...] | None:
    """Return the values that are searched by default and that the trainer can express."""
    values = default_space(job).values(name)
    one = OPTIONS[name]
    if values is None:
        return None
    alone = [rule for rule in rules if fields_read(rule, job) == {name}]
    usual = [v for v in values if is_gated or v not in one.not_equivalent]
    for candidates in (usual, (one.default,), one.values):
        fields: list[dict[str, Any]] = [{name: one.value_of(value)} for value in candidates]
        layouts = zip(candidates, (replace(Layout(), **field) for field in fields), strict=True)
        if kept := tuple(value for value, x in layouts if not any(rule.broken(x, job) for rule in alone)):
            return kept
    return values  # kept, so that the rules can refuse it


def _require_sayable(
    asked: Mapping[str, tuple[int, ...]], job: Job, space: SearchSpace, rules: Sequence[Rule], trainer: Trainer
) -> None:
    """Check that the trainer can express every requested value that legal layouts have.

    Raises:
        InvalidInput: A requested value occurs in layouts that could run, but the trainer can express none of them. If
            there are several such values, a value whose own rule is broken is named first.
    """
    found = legal_layouts(job, space, (*RULES, *rules))
    complaints: list[InvalidInput] = []
    for name, values in asked.items():
        for value in set(values) - set(getattr(found, name).tolist()):
            narrowed = space.with_axes(**{name: (value,)})
            if len(legal_layouts(job, narrowed)) and (broken := explain_empty(job, narrowed, rules)):
                about = next((reason for reason in broken if reason.field == name), None)
                rule = f"the trainer {trainer.name} has no setting for this value: {(about or broken[0]).message}"
                plain, nearest = OPTIONS[name].to_plain(OPTIONS[name].value_of(value)), about.nearest if about else None
                refused = InvalidInput(f"space.{name}", plain, rule, nearest)
                if about is not None:
                    raise refused
                complaints.append(refused)
    for refused in complaints:
        raise refused
