"""Figures in words: three digits, units that fit, and never an exponent."""

import math

LEAST_SHARE, MOST_SHARE = 0.05, 0.99
"""Outside of these shares of the work nobody can say how long the rest takes."""


def digits(value: float) -> str:
    """Three digits, or all those before the point: "1,234", "12.3", "0.00457"."""
    if not math.isfinite(value):
        return "without end" if value > 0 else "unknown"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0 or abs(value) < 1e-6:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plain(value: float) -> str:
    """Four digits, or all those before the point, as one would give it to an option: "12345", "12.34"."""
    if not math.isfinite(value) or value == 0:
        return digits(value)
    places = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def milliseconds(seconds: float) -> str:
    """A time in the unit that fits: "4.07 µs", "12.3 ms", "15 s"."""
    if not math.isfinite(seconds):
        return digits(seconds)
    if abs(seconds) >= 9.9995:
        return f"{digits(seconds)} s"
    return f"{digits(seconds * 1e3)} ms" if abs(seconds) >= 1e-4 or seconds == 0 else f"{digits(seconds * 1e6)} µs"


def between_times(least_s: float, most_s: float) -> str:
    """For example "45 to 55 ms", or "900 µs to 1.2 ms" where the units differ."""
    least, most = milliseconds(least_s), milliseconds(most_s)
    same = least.rpartition(" ")[2] == most.rpartition(" ")[2]
    return f"{least.rpartition(' ')[0] if same else least} to {most}"


def percent(share: float) -> str:
    """A share with one decimal, or two where it is nearly none or nearly all: "90.4 %", "0.04 %"."""
    places = 2 if 0 < abs(share) < 0.00095 or 0.9995 <= share < 1 else 1
    return f"{100 * share:.{places}f} %"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def money(amount: float) -> str:
    """An amount without a currency, with two decimals, or three digits where it is below 1."""
    told = f"{amount:,.2f}"
    return told if amount >= 1 or float(told) == amount else digits(amount)


def load_in_words(low: float, high: float | None) -> str:
    return f"{digits(low)} and more" if high is None else f"{digits(low)} to {digits(high)}"


class Pace:
    """How long work goes on at its pace since the first share of it that was told, or since `began_s`.

    What came before that share, such as imports, had none. Where the share falls, another piece of work
    begins.
    """

    def __init__(self, began_s: float | None = None) -> None:
        self._first = None if began_s is None else (began_s, 0.0)
        self._before = 0.0

    def left_in_words(self, now_s: float, share: float) -> str:
        """For example " (about 90 s left)"; empty where it is not known."""
        if share < self._before or (self._first is None and share > 0):
            self._first = now_s, share
        self._before = share
        if self._first is None or share >= MOST_SHARE or share - self._first[1] < LEAST_SHARE:
            return ""
        return f" (about {(now_s - self._first[0]) * (1 - share) / (share - self._first[1]):.0f} s left)"
