"""What an endpoint says, on its way to a listener, without the key that it was asked with."""

from dataclasses import replace

from gearshift.runtime.engines.upstream.call import Fault, Listener
from gearshift.runtime.remote.masking import Mask


def hiding(mask: Mask, listener: Listener) -> Listener:
    """The listener, which from now on hears nothing that `mask` hides."""
    return _Masked(mask, listener) if mask else listener


class _Masked:
    __slots__ = ("_listener", "_mask")

    def __init__(self, mask: Mask, listener: Listener) -> None:
        self._mask, self._listener = mask, listener

    def event(self, data: bytes) -> None:
        self._listener.event(self._mask(data))

    def ended(self) -> None:
        self._listener.ended()

    def failed(self, fault: Fault) -> None:
        self._listener.failed(replace(fault, reason=self._mask.text(fault.reason), body=self._mask(fault.body)))
