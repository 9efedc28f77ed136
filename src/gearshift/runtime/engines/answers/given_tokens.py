"""The tokens that a model has given so far, as its certainty is made of them."""

import math
from array import array

from gearshift.profiles.engines.certainty import TokenCertainty, argument_tokens
from gearshift.runtime.engines.answers.tool_calls import Places
from gearshift.runtime.engines.upstream.chunk import Choice

MOST_CALLS = 128
"""Calls of tools whose arguments are looked for among the tokens."""


class GivenTokens:
    """Kept until the stage has decided; texts only where tools may be called."""

    __slots__ = ("_arguments", "_logprobs", "_places", "_seconds", "_texts")

    def __init__(self, *, has_tools: bool) -> None:
        self._logprobs, self._seconds = array("d"), array("d")
        self._texts: list[str] | None = [] if has_tools else None
        self._places = Places()
        self._arguments: list[list[str]] = []
        """The parts of each call's."""

    def add(self, part: Choice) -> None:
        for token in part.tokens:
            self._logprobs.append(token.logprob)
            self._seconds.append(math.nan if token.second is None else token.second)
            if self._texts is not None:
                self._texts.append(token.token)
        if self._texts is not None:
            self._add_arguments(part)

    def _add_arguments(self, part: Choice) -> None:
        calls = part.tool_calls
        for order, call in enumerate(calls):
            name, text = ("", "") if call.function is None else (call.function.name, call.function.text)
            place = self._places.of(call.id, call.index, name, text, order=order, among=len(calls))
            if place == len(self._arguments) < MOST_CALLS:
                self._arguments.append([])
            if text and place < len(self._arguments):
                self._arguments[place].append(text)

    def until(self, token: int | None) -> TokenCertainty:
        """The certainty of the first tokens, or of all."""
        marks: list[bool] = []
        if self._arguments and self._texts is not None:
            marks = argument_tokens(self._texts, ["".join(parts) for parts in self._arguments])
        so_far = TokenCertainty()
        for place, logprob in enumerate(self._logprobs[:token]):
            second = self._seconds[place]
            so_far.add(logprob, None if math.isnan(second) else second, of_arguments=bool(marks) and marks[place])
        return so_far
