"""How far a training may end from that of one process before its mathematics is another."""

from __future__ import annotations

from autotuner.core.choices import Precision
from tests.oracle.training import Distance

TOLERANCES = {
    # Sums in another order differ in the seventh digit. AdamW divides a gradient by its own size, so an element whose
    # gradient is nearly nothing may step the other way: that much of a tensor's update is noise in any layout, and most
    # where replicas that train apart read a few dozen tokens each (1.03e-3 was seen, where losses agree to 1e-7).
    Precision.FP32: Distance(loss=1e-5, norm=1e-5, parameters=2e-3),
    # A bf16 value has 8 binary digits, 2^-9 = 2e-3 of rounding, and passes a dozen roundings per layer; a loss averages
    # over 256 tokens. Two steps of AdamW turn the rounding of small gradients into updates.
    Precision.BF16: Distance(loss=1e-3, norm=1e-2, parameters=0.5),
    # e4m3 has 3 binary digits behind the point, 2^-4 of rounding, and a scale that is shared by other values where
    # tensors are cut otherwise.
    Precision.FP8_EMULATED: Distance(loss=5e-3, norm=5e-2, parameters=0.8),
}
"""An axis left out of a reduction, a sum in place of a mean, changes a norm by a third or more."""


def agrees(distance: Distance, precision: Precision) -> bool:
    """All parts are within the tolerance of the number format."""
    most = TOLERANCES[precision]
    return distance.loss <= most.loss and distance.norm <= most.norm and distance.parameters <= most.parameters
