"""Metering of load."""

METER_WINDOW_NS = 100_000_000
METER_KEEPS_ARRIVALS = 30


def arrival_rate_qps(recent_count: int, window_ns: int, kept_count: int, kept_oldest_ns: int, now_ns: int) -> float:
    """Requests per second over the last `window_ns` or `kept_count` arrivals, whichever is longer.

    `recent_count` arrivals fell into `[now - window, now)`; `kept_oldest_ns` is when the oldest
    kept one came (the beginning of the run while fewer have come than are kept).
    """
    if now_ns - kept_oldest_ns <= window_ns:
        return recent_count * 1e9 / window_ns
    return kept_count * 1e9 / (now_ns - kept_oldest_ns)
