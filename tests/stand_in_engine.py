"""A stand-in for an engine that is started by a command: `PORT TP MEMORY_SHARE FILE`, which gets a line a request."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.stand_in_endpoint import Answer, as_words, asked_text, serve_forever


def main() -> None:
    port, degree, share, file = sys.argv[1:]

    def answer(body: dict[str, Any]) -> Answer:
        with Path(file).open("a") as asked:
            asked.write(f"{degree} {share} {asked_text(body)}\n")
        return as_words(body)

    asyncio.run(serve_forever(answer, "127.0.0.1", int(port)))


if __name__ == "__main__":
    main()
