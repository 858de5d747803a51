"""When the requests of an open loop are sent: a fixed rate, with gaps drawn from a gamma distribution.

Burstiness is the shape of the distribution, as the field has it: 1 makes arrivals a Poisson process, less
makes them come in bursts, more makes them even. The gaps are scaled so that the offered rate is exact.
"""

from __future__ import annotations

from collections.abc import Callable


def arrival_times(
    requests: int, rate: float, burstiness: float, gamma: Callable[[float, float], float]
) -> tuple[float, ...]:
    """Return when each request is due, in seconds from the first; ``gamma(shape, scale)`` draws a gap."""
    gaps = [gamma(burstiness, 1 / (rate * burstiness)) for _ in range(requests - 1)]
    drawn_s = sum(gaps)
    scale = (requests - 1) / rate / drawn_s if drawn_s > 0 else 0.0
    times, at_s = [0.0], 0.0
    for gap in gaps:
        at_s += gap * scale
        times.append(at_s)
    return tuple(times)
