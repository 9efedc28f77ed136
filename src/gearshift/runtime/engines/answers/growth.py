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
    tokens too, so that only the engine bounds it.
    """

    __slots__ = ("_bytes", "_choices", "_echo_bytes", "_held_tokens", "_most_tokens", "_tokens")

    def __init__(self, *, most_tokens: int, held_tokens: int, choices: int = 1, echo_bytes: int = 0) -> None:
        self._most_tokens, self._held_tokens, self._choices = most_tokens, held_tokens, choices
        self._echo_bytes = echo_bytes
        self._tokens = self._bytes = 0

    def add(self, tokens: int, size_bytes: int) -> str:
        """Why the answer is none, once it has grown by these tokens, over all choices, and bytes; else empty."""
        self._tokens += tokens
        self._bytes += size_bytes
        asked = self._held_tokens if self._echo_bytes else min(self._most_tokens, self._held_tokens)
        if self._tokens > (TOO_MANY_TOKENS * asked + MORE_TOKENS) * self._choices:
            return f"an engine gave {self._tokens} tokens, and {self._said(asked)}"
        most_bytes = FIRST_BYTES + ECHO_BYTES * self._echo_bytes * self._choices
        if self._bytes > most_bytes + TOKEN_BYTES * self._tokens:
            return f"an engine gave {self._bytes} bytes in {self._tokens} tokens, which is no text"
        return ""

    def _said(self, asked: int) -> str:
        each = f" in each of {self._choices} answers" if self._choices > 1 else ""
        held = asked == self._held_tokens and (self._echo_bytes or asked != self._most_tokens)
        return f"it holds {asked} as it was profiled{each}" if held else f"{asked} were asked for{each}"
