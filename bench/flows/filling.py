"""Progressive filling: the rates at which no stream could be faster without a slower one being slower still.

All rates rise together until a link is full; its streams stay as they are, and the others rise on (Bertsekas, Gallager,
"Data Networks", 2nd edition, section 6.5.2). Whatever is symmetric fills up at the same moment, so that a network of
100,000 ranks takes as many rounds as it has different bottlenecks, mostly one.
"""

from __future__ import annotations

import numpy as np

from bench.flows.streams import Floats, Streams

_FULL = 1e-9
"""Share of its capacity that a full link may have left over: rounding."""


def fair_rates(streams: Streams, capacities: Floats) -> Floats:
    """Max-min fair rate of each stream; infinite for one that passes no link.

    Args:
        streams: What passes which link.
        capacities: Bytes per second of each link.
    """
    rates = np.full(streams.num_streams, np.inf)
    stream, link, weight = streams.stream, streams.link, streams.weight
    left, level = capacities.astype(np.float64), 0.0
    while len(stream):
        load = np.bincount(link, weights=weight, minlength=len(capacities))
        rising = load > 0
        rise = float((left[rising] / load[rising]).min())
        level, left = level + rise, left - rise * load
        is_full = rising & (left <= _FULL * capacities)
        held = np.zeros(streams.num_streams, dtype=np.bool_)
        held[stream[is_full[link]]] = True
        rates[held] = level
        rises = ~held[stream]
        stream, link, weight = stream[rises], link[rises], weight[rises]
    return rates
