"""The probability of the tokens that spell a label."""

import math
from collections.abc import Iterable, Sequence

LEFT = " \t\r\n\v\f\"'`*_([{<\u201c\u2018\u00ab"
RIGHT = " \t\r\n\v\f\"'`*_)]}>.,;:!\u201d\u2019\u00bb"
"""Characters allowed around a class: blanks, quotes, emphasis, the end of a sentence."""
MARKS = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
"""Characters that some servers write for blanks and line breaks of tokens."""

Span = tuple[int, int]
"""Begin and end of text in an answer."""


def stripped(text: str) -> Span:
    begin = len(text) - len(text.lstrip())
    return begin, max(begin, len(text.rstrip()))


def peeled(text: str) -> Span:
    begin = len(text) - len(text.lstrip(LEFT))
    return begin, max(begin, len(text.rstrip(RIGHT)))


def probability(text: str, span: Span, tokens: Sequence[tuple[bytes, float]]) -> float:
    """The probability of `span` in the answer `text`, from its `tokens` and log-probabilities.

    It is the product over all tokens that spell some of it, even if they spell more. A token may
    be a part of a character. If the tokens do not spell the answer, all of them count.
    """
    spelled = [token for token, _ in tokens]
    begun = _begin_of(text, _decoded(spelled))
    if begun is None:
        spelled = [token.decode(errors="ignore").translate(MARKS).encode() for token in spelled]
        begun = _begin_of(text, _decoded(spelled))
    if begun is None:
        return _together(logprob for _, logprob in tokens)
    whole = _decoded(spelled)
    begin, end = (len(whole[: at + begun].encode()) for at in span)
    overlapping, at = [], 0
    for token, (_, logprob) in zip(spelled, tokens, strict=True):
        if at < end and at + len(token) > begin:
            overlapping.append(logprob)
        at += len(token)
    return _together(overlapping)


def _decoded(spelled: Sequence[bytes]) -> str:
    return b"".join(spelled).decode(errors="replace")


def _begin_of(text: str, spelled: str) -> int | None:
    """The answer's position in its tokens' text; servers cut blanks, and give hidden tokens."""
    if spelled.startswith(text):
        return 0
    begin, end = stripped(text)
    core = text[begin:end]
    lead = len(spelled) - len(spelled.lstrip())
    at = lead if spelled.startswith(core, lead) else spelled.rfind(core)
    return None if at < 0 else at - begin


def _together(logprobs: Iterable[float]) -> float:
    return math.exp(min(0.0, math.fsum(logprobs)))
