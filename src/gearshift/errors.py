"""Errors with their message, exit code and HTTP status, and remedies for numbers that are none."""

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

_PERCENT = re.compile(r"\s*([0-9]+(?:[.,][0-9]+)?)\s*%\s*")
_COMMA = re.compile(r"\s*([+-]?[0-9]+),([0-9]+)\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[0-9]{1,3}(?:([,.' \u00a0\u202f])[0-9]{3})(?:\1[0-9]{3})*([.,][0-9]+)?\s*")
_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|μs|ms|s|sec|min)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0}


def _without_exponent(value: float) -> str:
    """Four digits where that needs no exponent, else a whole number, or eight places."""
    if 1e-4 <= value < 9999.5:
        return f"{value:.4g}"
    return f"{value:.0f}" if value > 1 else f"{value:.8f}"


class GearshiftError(Exception):
    """An error that a person can act on; its text says what, where and the remedy.

    A refused request may be sent again after `retry_after_s`. In the forms of OpenAI's API `param` names the field
    that is wrong, and `code` says why.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retry_after_s: int | None = None
    code: str | None = None
    param: str | None = None

    def facts(self) -> dict[str, object]:
        """The error as plain data, for `--json` and response bodies."""
        return {"kind": self.kind, "message": str(self)}


class InvalidInput(GearshiftError, ValueError):
    """The caller's fault: a value, a file or a request that cannot be used.

    It is a `ValueError`, so that msgspec adds the field's path when one is raised while decoding.
    """

    kind = "invalid_input"
    exit_code = 2
    http_status = 400

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {remedy}" if remedy else text)


class UnknownModel(InvalidInput):
    """A request names an operator that is not served, or a gear that its plan does not have."""

    kind = "unknown_model"
    http_status = 404


class NoAccess(InvalidInput):
    """A request without a key, or with one that does not permit the operation."""

    kind = "no_access"
    http_status = 401


class Forbidden(InvalidInput):
    """A request that is not permitted from where it comes."""

    kind = "forbidden"
    http_status = 403


class NotAcceptable(InvalidInput):
    """An answer cannot be written in the form that was asked for."""

    kind = "not_acceptable"
    http_status = 406


class TooLarge(InvalidInput):
    """A request body is over the limit."""

    kind = "too_large"
    http_status = 413


class TooLargeInside(TooLarge):
    """A request whose content is over a limit; its body was read."""


class QueueFull(GearshiftError):
    """The queues are at their bound; try again later."""

    kind = "queue_full"
    http_status = 429
    retry_after_s: int

    def __init__(self, text: str, retry_after_s: int = 1) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class SwapFailed(GearshiftError):
    """A plan was not put in force; the former one still serves."""

    kind = "swap_failed"
    http_status = 409


class NotReady(GearshiftError):
    """The server is starting, draining, or lacks a replica of some model."""

    kind = "not_ready"
    http_status = 503
    retry_after_s = 1


class ModelFailed(GearshiftError):
    """A user's model raised, or returned an unusable answer."""

    kind = "model_failed"
    exit_code = 2
    http_status = 500


class RowsRefused(ModelFailed):
    """An endpoint refused the rows of a batch: a fault of the rows or of their number, not of the endpoint."""


class WorkerDied(GearshiftError):
    """A worker process ended while it held requests."""

    kind = "worker_died"
    http_status = 500


class NoAnswer(GearshiftError):
    """A server could not be reached, or connection or time ended before its answer was whole.

    `sent` tells whether the request may have reached the server.
    """

    kind = "no_answer"

    def __init__(self, text: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(text)


class DeadlinePassed(GearshiftError):
    """A request was not answered within its deadline."""

    kind = "deadline_passed"
    http_status = 504


class RequestFailed(GearshiftError):
    """A server took a request and could not answer it."""

    kind = "request_failed"
    http_status = 500


class Infeasible(GearshiftError):
    """No candidate plan meets the objective.

    Names the load range, the bottleneck and the nearest objectives. `bottleneck` is a model, on
    `device`. Each nearest objective is feasible with the others unchanged; with `together` only
    when nearest latency and accuracy are both adopted. Where `by_load` is false, for lack of time
    or of recorded samples, there is no bottleneck and no load range.
    """

    kind = "infeasible"
    exit_code = 3

    def __init__(
        self,
        reason: str,
        *,
        load_range: str = "",
        bottleneck: str = "",
        device: str = "",
        nearest_latency_s: float | None = None,
        nearest_accuracy: float | None = None,
        nearest_devices: int | None = None,
        together: bool = False,
        by_load: bool = True,
    ) -> None:
        self.by_load = by_load
        self.reason, self.load_range, self.bottleneck, self.device = reason, load_range, bottleneck, device
        self.nearest_latency_s, self.nearest_accuracy = nearest_latency_s, nearest_accuracy
        self.nearest_devices, self.together = nearest_devices, together
        parts = [reason]
        if load_range:
            parts.append(f"the load range that fails is {load_range}")
        if bottleneck:
            parts.append(f"the bottleneck is model {bottleneck!r}" + f" on device {device!r}" * bool(device))
        if nearest_latency_s is not None:
            parts.append(f"the nearest feasible latency is {_without_exponent(nearest_latency_s * 1e3)} ms")
        if nearest_accuracy is not None:
            with_it = " with it" * together
            parts.append(f"the nearest feasible accuracy{with_it} is {nearest_accuracy:.4g}")
        if nearest_devices is not None:
            parts.append(f"the nearest feasible number of devices is {nearest_devices}")
        super().__init__("; ".join(parts))

    def facts(self) -> dict[str, object]:
        nearest = "nearest_latency_s", "nearest_accuracy", "nearest_devices", "together"
        return super().facts() | {
            name: getattr(self, name) for name in ("load_range", "bottleneck", "device", *nearest)
        }


def printable(text: str) -> str:
    """Escape the parts of `text` that cannot be encoded, such as bytes that were not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def all_of(errors: Sequence[InvalidInput], *, where: str) -> InvalidInput:
    """Join several errors of one place, a line each; a single error stays as it is."""
    if len(errors) == 1:
        return errors[0]
    lines = "".join(f"\n\t{error}" for error in errors)
    return InvalidInput(f"{len(errors)} things are wrong:{lines}", where=where, remedy="mend them all")


def require(condition: bool, what: str, *, where: str = "", remedy: str = "") -> None:
    if not condition:
        raise InvalidInput(what, where=where, remedy=remedy)


def require_each(of: object, names: Sequence[str], usable: Callable[[Any], bool], needs: str) -> None:
    for name in names:
        value = getattr(of, name)
        require(usable(value), f"{name} is {value}, needs {needs}")


def how_to_write(text: str, *, otherwise: str = "write a plain number, such as 0.5") -> str:
    """The remedy for `text` where a number is needed; `otherwise` if it does not look like one."""
    if found := _PERCENT.fullmatch(text):
        return f"write a share in place of a percentage: {float(found[1].replace(',', '.')) / 100:.12g}"
    if found := _UNIT.fullmatch(text):
        return f"write seconds without their unit: {float(found[1]) * _SECONDS[found[2]]:.12g}"
    if (found := _THOUSANDS.fullmatch(text)) and (found[2] or text.count(found[1]) > 1 or found[1] not in ".,"):
        return "leave out what parts thousands, and write a point before decimals"
    if found := _COMMA.fullmatch(text):
        return f"write a point for the decimal comma: {found[1]}.{found[2]}"
    return otherwise


def share_of(value: float) -> str:
    """Suggest a share from 0 to 1 where `value` may be a percentage; empty where it is not."""
    return f"write {value / 100:.12g} for {value:.12g} %" if 2 < value <= 100 else ""
