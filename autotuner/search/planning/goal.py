"""Goal: how much is to be trained, by when and for how much; and how often that is interrupted."""

from __future__ import annotations

import math

from autotuner.core.errors import InvalidInput
from autotuner.core.value import NonNegative, Positive, Seconds, value

USUAL_SEQ_LEN = 8192
USUAL_GLOBAL_BATCH = 1024
"""Tokens of a sequence and sequences of a step where nobody says them: as Llama 3 was trained (arXiv 2407.21783)."""

_S_PER_HOUR = 3600.0


@value
class Goal:
    """A training run that somebody wants.

    Attributes:
        num_tokens: That the model is trained on.
        deadline_s: By when it should be done, from its start; None: time is a matter of taste.
        price_limit: What it should cost at most, in US dollars; None: so is money.
        broken_weight: How many more such runs a run counts as that breaks a limit. The default is an assumption: a
            cluster that breaks a limit in every third case is as good as one at twice its price that never does.
    """

    num_tokens: float
    deadline_s: float | None = None
    price_limit: float | None = None
    broken_weight: NonNegative = 3.0

    def __post_init__(self) -> None:
        for name in ("num_tokens", "deadline_s", "price_limit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidInput(name, value, "must be above 0, and a number")


@value
class Failures:
    """How often accelerators, hosts and networks interrupt a job, and what each time takes.

    The defaults are those of Llama 3 405B (arXiv 2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on
    16,384 H100, and more than 90 % of the time effective, of which each interruption then has 19.5 minutes. Other
    clusters fail at other rates: that this one's lie within a factor of 2 in 80 of 100 cases is an assumption.

    Attributes:
        hours_between: Hours that one accelerator runs, on average, between interruptions of its job.
        lost_s: What an interruption takes: the way back to a checkpoint, and training once more what came after it.
        spread: Factor by which the losses may be larger or smaller in 80 of 100 cases.
    """

    hours_between: Positive = 50_676.0
    lost_s: Seconds = 1_173.0
    spread: float = 2.0

    def __post_init__(self) -> None:
        if not self.spread >= 1.0:
            raise InvalidInput("spread", self.spread, "must be 1.0 or more", 1.0)

    def log_slowdown(self, num_accelerators: int) -> float:
        """Logarithm of the job's time over that without interruptions.

        Interruptions are a Poisson process that strikes recoveries, too: the time grows by exp(rate x what each takes)
        (Daly 2006, Future Generation Computer Systems 22), where recoveries are short beside the time between failures.
        """
        return num_accelerators * self.lost_s / (self.hours_between * _S_PER_HOUR)

    def goodput(self, num_accelerators: int) -> float:
        """Share of the time in which so many accelerators make progress."""
        return math.exp(-self.log_slowdown(num_accelerators))
