"""What an operator says of a Ray cluster, beside what every engine is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Positive, value

_OURS = "AUTOTUNER_"


@value
class RaySettings:
    """How jobs are asked for.

    Attributes:
        address: Of Ray's dashboard, which serves the Jobs API: ``http://head:8265``.
        token_variable: Variable of the service that holds the token for Ray (``RAY_AUTH_MODE=token``); empty: none.
        python: Interpreter on the nodes, of the version that Ray itself runs in, with Ray, torch and our package.
        accelerator_resource: What an accelerator is to Ray; a cluster of cores asks for none.
        cpus_per_accelerator: Cores (to Ray) per rank.
        resources: Custom resources that each node of a job gives beside them.
        queue_resources: The same by queue: what tells the nodes of one from those of another.
        runtime_env: Passed to Ray as it is: ``working_dir``, ``env_vars``, ``image_uri`` and whatever Ray knows.
        request_timeout_s: A request that has not been answered by then counts as unanswered.
        cancel_s: How long a cancelled job may take to end.
    """

    address: str
    token_variable: str = ""
    python: str = "python3"
    accelerator_resource: str = "GPU"
    cpus_per_accelerator: Positive = 1.0
    resources: dict[str, float] = field(default_factory=dict)
    queue_resources: dict[str, dict[str, float]] = field(default_factory=dict)
    runtime_env: dict[str, object] = field(default_factory=dict)
    request_timeout_s: Positive = 10.0
    cancel_s: Positive = 40.0

    def __post_init__(self) -> None:
        if not self.address.startswith(("http://", "https://")):
            nearest = f"http://{self.address.partition('://')[2] or self.address}"
            raise InvalidInput("address", self.address, "must be the dashboard's, which speaks HTTP", nearest)
        _require_amounts("resources", self.resources)
        for queue, amounts in self.queue_resources.items():
            _require_amounts(f"queue_resources.{queue}", amounts)
        for name, given in self.env_vars.items():
            if not isinstance(given, str) or name.startswith(_OURS):
                rule = f"must be a text, and its name must not begin with {_OURS}, which is the launcher's own"
                raise InvalidInput(f"runtime_env.env_vars.{name}", given, rule)

    @property
    def env_vars(self) -> Mapping[str, object]:
        """The variables of ``runtime_env``."""
        given = self.runtime_env.get("env_vars", {})
        if not isinstance(given, dict):
            raise InvalidInput("runtime_env.env_vars", given, "must be a table of texts")
        return given


def _require_amounts(path: str, amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        if name in ("CPU", "GPU", "memory", "object_store_memory"):
            raise InvalidInput(f"{path}.{name}", amount, "must be a custom resource; Ray's own follow from the cluster")
        if not amount > 0:
            raise InvalidInput(f"{path}.{name}", amount, "must be positive")
