"""Bounds on one answer: tokens that were asked for or that an engine holds, and bytes for each token."""

TOO_MANY_TOKENS, MORE_TOKENS = 2, 64
"""An answer of this factor times the tokens that there may be, and so many more, has no end."""
FIRST_BYTES = 4 << 20
"""Without tokens; some engines give a whole answer, or a call of a tool, at once."""
TOKEN_BYTES = 16 << 10
"""For one token with twenty others, their log-probabilities, and what stands around them."""
ECHO_BYTES = 8
"""For each byte of a prompt that is repeated: characters may be escaped."""


class Growth:
    """Counts tokens and bytes of all choices of one answer.

    `most_tokens` are those of one choice that were asked for; `held_tokens` are all that the engine
    holds, prompts among them. An answer that repeats its prompt (`echo_bytes`) lists the prompt's
    tokens too, in each choice, so that only the engine bounds it.
    """

    __slots__ = ("_bytes", "_most_first_bytes", "_most_tokens", "_tokens", "_why")

    def __init__(self, *, most_tokens: int, held_tokens: int, choices: int = 1, echo_bytes: int = 0) -> None:
        held = (TOO_MANY_TOKENS * held_tokens + MORE_TOKENS) * (choices if echo_bytes else 1)
        asked = (TOO_MANY_TOKENS * most_tokens + MORE_TOKENS) * choices
        each = f" in each of {choices} answers" if choices > 1 else ""
        if echo_bytes or held < asked:
            self._most_tokens = held
            self._why = f"it holds {held_tokens} as it was profiled{each if echo_bytes else ''}"
        else:
            self._most_tokens = asked
            self._why = f"{most_tokens} were asked for{each}"
        self._most_first_bytes = FIRST_BYTES + ECHO_BYTES * echo_bytes * choices
        self._tokens = self._bytes = 0

    def add(self, tokens: int, size_bytes: int) -> str:
        """Why the answer is none, once it has grown by these tokens, over all choices, and bytes; else empty."""
        self._tokens += tokens
        self._bytes += size_bytes
        if self._tokens > self._most_tokens:
            return f"it gave {self._tokens} tokens, and {self._why}"
        if self._bytes > self._most_first_bytes + TOKEN_BYTES * self._tokens:
            return f"it gave {self._bytes} bytes in {self._tokens} tokens, which is no text"
        return ""
