"""The header `Retry-After`."""

import time
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_NUMBER = 15


def asked_pause_s(retry_after: str) -> float | None:
    """Seconds to wait (RFC 9110, section 10.2.3); None if none, or a past date (clocks differ)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:LONGEST_NUMBER])
    try:
        date = parsedate_to_datetime(retry_after)
        left_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return left_s if left_s > 0 else None
