"""Why trials died, in words."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.trial import FailureKind

FAILURE_WORDS: Mapping[FailureKind, str] = {
    FailureKind.OOM: "out of memory",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.COMMUNICATION: "communication failed",
    FailureKind.NUMERICS: "the loss is no number",
    FailureKind.CRASH: "crashed",
    FailureKind.INTERRUPTED: "the service died around it",
    FailureKind.INFRASTRUCTURE: "its nodes were lost, or its machine had no room",
}
"""What people call each kind of death."""
