from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.ray.settings import RaySettings


def test_an_address_is_enough() -> None:
    assert RaySettings(address="http://head:8265").env_vars == {}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"address": "ray://head:10001"}, "address"),
        ({"request_timeout_s": 0.0}, "request_timeout_s"),
        ({"resources": {"GPU": 8.0}}, "resources.GPU"),
        ({"queue_resources": {"a100": {"a100": 0.0}}}, "queue_resources.a100.a100"),
        ({"runtime_env": {"env_vars": {"AUTOTUNER_TASK": "mine"}}}, "runtime_env.env_vars.AUTOTUNER_TASK"),
        ({"runtime_env": {"env_vars": {"DEBUG": 1}}}, "runtime_env.env_vars.DEBUG"),
        ({"runtime_env": {"env_vars": "DEBUG=1"}}, "runtime_env.env_vars"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_meant_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RaySettings(**{"address": "http://head:8265", **said})
    assert refused.value.field == field


def test_the_address_of_a_ray_client_has_the_dashboards_beside_it() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: http://head:8265"):
        RaySettings(address="ray://head:8265")
