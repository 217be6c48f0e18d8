"""Legality: the rules that decide which layouts can run."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidDocument, InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.choices import CHOICE_RULES
from autotuner.core.rules.collectives import COLLECTIVE_RULES
from autotuner.core.rules.degrees import DEGREE_RULES
from autotuner.core.rules.exchange import EXCHANGE_RULES
from autotuner.core.rules.links import LINK_RULES
from autotuner.core.rules.rule import Reason, Rule

_OF_CHOICES = (*CHOICE_RULES, *COLLECTIVE_RULES, *EXCHANGE_RULES)

RULES: tuple[Rule, ...] = (*DEGREE_RULES, *_OF_CHOICES, *LINK_RULES)
"""Rules of physics and arithmetic. A layout that breaks one of them cannot run anywhere on the cluster."""

IDLE_RULES: tuple[Rule, ...] = tuple(rule for rule in _OF_CHOICES if rule.is_idle)
"""Rules for options that have no effect with the other values of the layout. The same run, written with the default,
breaks none of them."""

HARDWARE_RULES: tuple[Rule, ...] = tuple(rule for rule in _OF_CHOICES if rule.is_of_hardware)
"""Rules about the capabilities of accelerators, links and software. If a layout breaks one, no change of its other
options helps."""


def reasons(layout: Layout, job: Job, rules: Iterable[Rule] | None = None) -> tuple[Reason, ...]:
    """Return one reason for every rule that the layout breaks; empty for a legal layout.

    Args:
        layout: Layout to check.
        job: Model, cluster, workload and software that the layout must suit.
        rules: Rules to check; None: ``RULES``, which apply to every trainer.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> from autotuner.core.workload import Workload
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> reasons(Layout.parse("fsdp8 mb1"), job)
        ()
        >>> [(reason.field, reason.nearest) for reason in reasons(Layout.parse("fsdp8 mb3"), job)]
        [('micro_batch_size', 2)]
    """
    return tuple(
        Reason(rule=r.name, field=r.field, message=r.message(layout, job), nearest=r.nearest(layout, job))
        for r in (RULES if rules is None else rules)
        if r.broken(layout, job)
    )


def require_legal(layout: Layout, job: Job, rules: Iterable[Rule] | None = None) -> None:
    """Check that the layout keeps all rules.

    Args:
        layout: Layout to check.
        job: Model, cluster, workload and software that the layout must suit.
        rules: Rules to check; None: ``RULES``, which apply to every trainer.

    Raises:
        InvalidInput: The layout breaks a rule. The error is about the first broken rule and names the nearest legal
            value.
    """
    for reason in reasons(layout, job, rules):
        raise InvalidInput(reason.path, to_plain(reason.value(layout, job)), reason.message, reason.nearest)


def require_asked(layout: Layout, job: Job, rules: Iterable[Rule] | None = None) -> None:
    """Check that the layout of a request keeps all rules. The paths of fields in errors start with ``layout.``.

    Args:
        layout: Layout to check.
        job: Model, cluster, workload and software that the layout must suit.
        rules: Rules to check; None: ``RULES``, which apply to every trainer.

    Raises:
        InvalidDocument: The layout breaks rules. The error lists all of them.
    """
    if broken := reasons(layout, job, rules):
        given = [(f"layout.{one.field}", to_plain(getattr(layout, one.field)), one) for one in broken]
        raise InvalidDocument([InvalidInput(path, value, one.message, one.nearest) for path, value, one in given])


def illegal(layout: Layout, job: Job, rules: Iterable[Rule]) -> bool:
    """Return True if the layout breaks at least one of the rules; for a table of layouts, a column of booleans."""
    verdict = False
    for rule in rules:
        verdict = verdict | rule.broken(layout, job)
    return verdict
