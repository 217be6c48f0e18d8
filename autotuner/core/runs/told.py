"""Whether a cluster tells what an objective compares layouts by."""

from __future__ import annotations

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.runs.metric import Metric
from autotuner.core.runs.objective import Objective
from autotuner.errors import InvalidInput

__all__ = ["metrics_told", "require_told"]


def metrics_told(cluster: Cluster, *, has_trace: bool = False) -> tuple[Metric, ...]:
    """Every metric that layouts on a cluster can be compared by.

    Args:
        cluster: Whose prices, power and emissions count.
        has_trace: Layouts run under a fault trace, so that their robustness is known.
    """
    return tuple(metric for metric in Metric if not _lacks(metric, cluster, has_trace=has_trace))


def require_told(objective: Objective, cluster: Cluster, *, has_trace: bool = False) -> None:
    """Return if all that an objective reads is known of a cluster.

    Raises:
        InvalidInput: Something is not; with what would have to be said, and the nearest metric that can be told.
    """
    for metric in objective.metrics:
        if lacking := _lacks(metric, cluster, has_trace=has_trace):
            raise InvalidInput(_place(objective, metric), metric.value, lacking, _nearest(metric, cluster))


def _lacks(metric: Metric, cluster: Cluster, *, has_trace: bool) -> str:
    """What is not known of a cluster without which a metric has no value; empty where nothing is missing."""
    tariff, power_w = cluster.tariff, cluster.accelerator.power_w
    needs_power = "needs cluster.accelerator.power_w above 0: what an accelerator draws at most, in watts"
    match metric:
        case Metric.TOKENS_PER_JOULE if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not power_w:
            return needs_power
        case Metric.TOKENS_PER_KG_CO2 if not tariff.co2_kg_per_kwh:
            return "needs cluster.tariff.co2_kg_per_kwh above 0: what the energy's mix emits"
        case Metric.TOKENS_PER_DOLLAR if not (_hourly(cluster) or (tariff.energy_price_per_kwh and power_w)):
            return "needs cluster.price_per_accelerator_hour above 0, or cluster.tariff.energy_price_per_kwh"
        case Metric.ROBUSTNESS if not has_trace:
            return "needs a fault_trace that layouts run under"
    return ""


def _hourly(cluster: Cluster) -> float:
    tariff = cluster.tariff
    return tariff.spot_price_per_accelerator_hour if tariff.is_spot else cluster.price_per_accelerator_hour


def _nearest(metric: Metric, cluster: Cluster) -> str:
    """A metric of the same kind that is known: energy for emissions, simplicity for robustness, else speed."""
    if metric is Metric.ROBUSTNESS:
        return Metric.SIMPLICITY.value
    reads_energy = metric in (Metric.TOKENS_PER_KG_CO2, Metric.TOKENS_PER_DOLLAR)
    return (Metric.TOKENS_PER_JOULE if reads_energy and cluster.accelerator.power_w else Metric.TOKENS_PER_S).value


def _place(objective: Objective, metric: Metric) -> str:
    """Field of a request that names the metric."""
    if any(metric is one.metric for one in objective.profile):
        return "objective.profile"
    return "objective.front" if metric in objective.front else "objective.metric"
