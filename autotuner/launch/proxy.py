"""Proxy depth: predicts the whole model's step time from two runs of the same model with fewer layers.

The work, the traffic and the memory of a rank grow by a constant amount with every layer of its stages. Two smaller
models whose layers are spread over the stages as unevenly as the whole model's therefore lie on a straight line with
it, as far as the time of a step is a sum over layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from autotuner.core.measurement import Breakdown, Measurement, PhaseTimes
from autotuner.core.stages import layers_per_stage, next_alike, with_layers_per_stage
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_bytes


def proxies(spec: TrialSpec) -> tuple[TrialSpec, TrialSpec] | None:
    """Return the trial with two smaller models, the one with fewer layers first, or None if the whole model should run.

    The whole model runs if the settings ask for no proxy trials (trials with fewer layers), or if the proxies would not
    be smaller. In a proxy, each stage has at least one layer, and the first stage has all dense layers. Layouts may
    recompute only every n-th layer, and models may have experts only in every n-th layer. The last layer of a proxy has
    the same place in these patterns as the last layer of the whole model.
    """
    if not spec.settings.proxy_layers_per_stage:
        return None
    layout, whole = spec.layout, layers_per_stage(spec.layout, spec.model.num_layers)
    shallow, deep = spec.settings.proxy_layers_per_stage
    period = math.lcm(layout.recompute_every, spec.model.experts.sparse_layer_interval if spec.model.experts else 1)
    shallow = next_alike(max(shallow, _fewest(spec)), whole, period)
    deep = next_alike(max(deep, shallow + 1), whole, period)
    if deep >= whole:
        return None
    return _with_layers_per_stage(spec, shallow), _with_layers_per_stage(spec, deep)


def _fewest(spec: TrialSpec) -> int:
    """Return the fewest layers per stage of a legal proxy whose first stages have the whole model's kinds of layers."""
    layout = spec.layout
    num_dense_layers = spec.model.experts.num_dense_layers if spec.model.experts else 0
    return max(
        layout.first_stage_less_layers + max(1, num_dense_layers),
        layout.last_stage_less_layers + 1,
        layout.recompute_every,
    )


def _with_layers_per_stage(spec: TrialSpec, num_layers: int) -> TrialSpec:
    model = with_layers_per_stage(spec.model, spec.layout, num_layers)
    return replace(spec, model=model, settings=replace(spec.settings, proxy_layers_per_stage=()))


def extrapolated(spec: TrialSpec, shallow: Measurement, deep: Measurement) -> Measurement | TrialFailure:
    """Return the whole model's measurement, extrapolated from its two ``proxies``.

    The result is a failure if the whole model would not fit in memory.

    Times, phases and bytes are extrapolated linearly in the number of layers. Losses, warm-up, clocks and power are
    taken from the larger proxy.
    """
    small, large = _required(proxies(spec))
    line = _Line(layers=(small.model.num_layers, large.model.num_layers), to=spec.model.num_layers)
    peak_bytes = line.all_bytes(shallow.peak_bytes, deep.peak_bytes)
    if max(peak_bytes) > _limit_bytes(spec):
        return _out_of_memory(spec, line, peak_bytes)
    step_time_s = line.at(shallow.step_time_s, deep.step_time_s)
    model_flop = spec.model.model_flop_per_step(spec.workload)
    hardware_flop = line.at(_hardware_flop(shallow), _hardware_flop(deep))
    return replace(
        deep,
        step_time_s=step_time_s,
        step_time_spread_s=line.at(shallow.step_time_spread_s, deep.step_time_spread_s),
        step_time_interval_s=line.error(shallow.step_time_interval_s, deep.step_time_interval_s),
        num_steps=min(shallow.num_steps, deep.num_steps),
        tokens_per_s=spec.workload.tokens_per_step / step_time_s,
        model_flop_per_s=model_flop / step_time_s,
        mfu=model_flop / (step_time_s * deep.peak_flop_per_s),
        hfu=hardware_flop / (step_time_s * deep.peak_flop_per_s),
        peak_bytes=peak_bytes,
        reserved_bytes=line.all_bytes(shallow.reserved_bytes, deep.reserved_bytes),
        phases=line.phases(shallow.phases, deep.phases),
        breakdown=line.breakdown(shallow.breakdown, deep.breakdown),
        sync_payload_bytes=line.of_both(shallow.sync_payload_bytes, deep.sync_payload_bytes),
        foreign_cpu_share=max(shallow.foreign_cpu_share, deep.foreign_cpu_share),
        noise_floor=max((n for n in (shallow.noise_floor, deep.noise_floor) if n is not None), default=None),
        num_disturbed=shallow.num_disturbed + deep.num_disturbed,
        extrapolated_from=line.layers,
        breakdown_failure=deep.breakdown_failure or shallow.breakdown_failure,
        timeline=None,  # the timeline would show a step with fewer layers
    )


def _limit_bytes(spec: TrialSpec) -> float:
    """Return the bytes that a rank of the whole model may hold."""
    limits = (spec.settings.memory_budget_bytes, spec.memory_bytes)
    return min((limit for limit in limits if limit is not None), default=math.inf)


def _required(found: tuple[TrialSpec, TrialSpec] | None) -> tuple[TrialSpec, TrialSpec]:
    assert found is not None, "what is extrapolated ran at two depths"
    return found


def _hardware_flop(measurement: Measurement) -> float:
    """Return the FLOP of one step, including recomputation."""
    return measurement.hfu * measurement.peak_flop_per_s * measurement.step_time_s


def _out_of_memory(spec: TrialSpec, line: _Line, peak_bytes: tuple[int, ...]) -> TrialFailure:
    most_bytes = max(peak_bytes)
    ran = " and ".join(map(str, line.layers))
    message = (
        f"extrapolated from {ran} to {line.to} layers, a rank needs {format_bytes(most_bytes)}, but "
        f"it has {format_bytes(_limit_bytes(spec))}"
    )
    return TrialFailure(kind=FailureKind.OOM, message=message, rank=peak_bytes.index(most_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A straight line through the figures of two smaller models, extended to the layers of the whole model.

    If noise makes the line fall, the figure of the deeper model is used, since more layers never take less.
    """

    layers: tuple[int, int]
    to: int

    @property
    def _steps(self) -> float:
        """Number of times the difference of the two depths fits between the deeper model and the whole model."""
        shallow, deep = self.layers
        return (self.to - deep) / (deep - shallow)

    def at(self, shallow: float, deep: float) -> float:
        """Return the figure of the whole model, extrapolated from those of the two smaller models."""
        return deep + max(0.0, deep - shallow) * self._steps

    def of_both(self, shallow: float | None, deep: float | None) -> float | None:
        """Return the figure of the whole model, or None if one of the two smaller models has none."""
        return None if shallow is None or deep is None else self.at(shallow, deep)

    def error(self, shallow: float | None, deep: float | None) -> float | None:
        """Return the error of the result of ``at``, to first order, if the errors of both figures are independent.

        It is None if one of the errors is None.
        """
        if shallow is None or deep is None:
            return None
        return math.hypot((1.0 + self._steps) * deep, self._steps * shallow)

    def all_bytes(self, shallow: Sequence[int], deep: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes of each rank of the whole model, extrapolated from those of the two smaller models."""
        return tuple(round(self.at(few, many)) for few, many in zip(shallow, deep, strict=True))

    def phases(self, shallow: PhaseTimes | None, deep: PhaseTimes | None) -> PhaseTimes | None:
        """Return the time of each phase of the whole model's step, or None if one of the smaller models has none."""
        if shallow is None or deep is None:
            return None
        return PhaseTimes(**{f.name: self.at(getattr(shallow, f.name), getattr(deep, f.name)) for f in fields(deep)})

    def breakdown(self, shallow: Breakdown | None, deep: Breakdown | None) -> Breakdown | None:
        """Return the parts of the whole model's step, for the slowest-computing rank of the larger proxy.

        It is None if one of the smaller models has no breakdown.
        """
        if shallow is None or deep is None:
            return None
        times = [f.name for f in fields(deep) if f.name != "rank"]
        return Breakdown(
            rank=deep.rank, **{name: self.at(getattr(shallow, name), getattr(deep, name)) for name in times}
        )
