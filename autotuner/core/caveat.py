"""Caveat: one warning for readers of predictions."""

from __future__ import annotations

from enum import StrEnum

from autotuner.core.job import Calibration
from autotuner.core.link import LinkHealth
from autotuner.core.value import value


class CaveatKind(StrEnum):
    """The kinds of caveats (warnings) that an answer with predictions may carry, such as a link with a known fault."""

    COMPARED = "compared"  # predictions for this kind of model were compared with runs on this stack and device
    NEVER_COMPARED = "never_compared"  # predictions for this kind of model were not compared on this stack and device
    # another stack and device on which predictions were compared, with the number of runs
    NEAREST_COMPARISON = "nearest_comparison"
    COMPARED_ELSEWHERE = "compared_elsewhere"  # choices that were compared only on other stacks or devices
    COMPARED_NOWHERE = "compared_nowhere"  # choices that were compared nowhere
    BORROWED_CONSTANTS = "borrowed_constants"  # constants that were measured on other hardware
    MEASURED_LINKS = "measured_links"  # the sources of the links of a cluster that a profile measured
    LINK_FAULT = "link_fault"  # a link whose state differs from the cluster's description
    PUBLISHED_DELEGATES = "published_delegates"
    LOSSY_EXCHANGE = "lossy_exchange"
    ASSUMED_DEMO = "assumed_demo"
    EARLY_CLIP = "early_clip"
    CALIBRATED = "calibrated"
    LINEAR_ATTENTION = "linear_attention"  # ``total``: number of all layers
    INDEXED_ATTENTION = "indexed_attention"
    PARALLEL_BLOCKS = "parallel_blocks"
    ATTENTION_SINKS = "attention_sinks"
    APPROXIMATED = "approximated"  # in the words of the model's description
    # ``count`` of ``total`` layers, whose queries see ``num_tokens`` keys
    COUNTED_OUTSIDE_WINDOWS = "counted_outside_windows"
    DRAWN_LENGTHS = "drawn_lengths"  # sequences of up to ``num_tokens`` tokens
    LEFT_OUT = "left_out"  # a cluster that has too many layouts
    THIN_SPACE = "thin_space"  # a cluster of which only a part of the layouts was searched


@value
class Caveat:
    """One warning for the reader of a prediction. Its kind decides which of the other fields have a value."""

    kind: CaveatKind
    subjects: tuple[str, ...] = ()
    """Names that the caveat concerns: a kind of model, choices of layouts, constants, the sources of the links, or the
    rule that a search space breaks."""
    stack: str = ""
    device: str = ""
    """Name of the accelerator; empty if the accelerator is not in the catalog."""
    cluster: str = ""
    count: int | None = None
    """Number of runs, or of layers, that the caveat concerns."""
    total: int | None = None
    """Number of layers of the model. ``count`` of them are concerned."""
    num_tokens: int | None = None
    """Number of keys that a query attends to, or length of the longest sequence."""
    link: LinkHealth | None = None
    calibration: Calibration | None = None
    """Calibration that the caveat concerns, without its factors for the parts of a step."""
