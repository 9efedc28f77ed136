"""Stands in for llama.cpp's server where that is not installed: answers lines about orders, mostly right.

python -m tests.programs.orders_engine --alias small --host 127.0.0.1 --port 8001 ...
"""

import argparse
import asyncio
import sys
from typing import Any
from zlib import crc32

from gearshift.verbs.init.language import PROMPTS, SEED
from gearshift.verbs.init.order_lines import order_lines
from tests.stand_in_endpoint import Answer, as_words, asked_text, chunks, serve_forever

RIGHT = {"small": 40, "medium": 75}
"""Per cent, by alias."""
KNOWN = {line.text: line.answer for line in order_lines(PROMPTS, SEED)}


def answer_of(alias: str, body: dict[str, Any]) -> Answer:
    text = asked_text(body)
    if body.get("ignore_eos"):
        return as_words(body, model=alias)
    right = crc32(f"{alias} {text}".encode()) % 100 < RIGHT[alias]
    answer = KNOWN.get(text, "?")
    said = [*(answer if right else answer[::-1])][: int(body.get("max_tokens") or 40)]
    logprobs = [-0.02 if right else -0.3 - 0.01 * (i % 5) for i in range(len(said))]
    return chunks(said, model=alias, logprobs=logprobs, prompt_tokens=len(text))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--alias", required=True, choices=RIGHT)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    asyncio.run(serve_forever(lambda body: answer_of(options.alias, body), options.host, options.port))


if __name__ == "__main__":
    sys.exit(main())
