"""An OpenAI-compatible endpoint whose every answer a test decides: chunks, or a status and a body."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = list[dict[str, Any]] | tuple[int, str]
"""Chunks of a stream, or a status and the text of an error."""


def chunks(
    text: list[str],
    *,
    model: str = "tiny",
    logprobs: list[float] | None = None,
    prompt_tokens: int = 10,
    finish: str | None = "stop",
) -> list[dict[str, Any]]:
    """The chunks of an answer of these tokens, each as probable as `logprobs` say."""
    made: list[dict[str, Any]] = []
    for i, token in enumerate(text):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": token}}
        if logprobs is not None:
            others = [{"token": token, "logprob": logprobs[i]}, {"token": "?", "logprob": logprobs[i] - 1}]
            choice["logprobs"] = {"content": [{**others[0], "top_logprobs": others}]}
        made.append({"model": model, "choices": [choice]})
    if finish:
        made.append({"model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(text)}
    return [*made, {"model": model, "choices": [], "usage": usage}]


def asked_text(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"]) if "messages" in body else str(body["prompt"])


def as_words(body: dict[str, Any], *, model: str = "tiny", answer: str = "yes") -> list[dict[str, Any]]:
    """A plain answer: prompts have a token for each word; with `ignore_eos` it is as long as may be."""
    count = int(body["max_tokens"]) if body.get("ignore_eos") else min(2, int(body["max_tokens"]))
    text = [answer, *[" so"] * (count - 1)]
    return chunks(text, model=model, logprobs=[-0.1] * count, prompt_tokens=len(asked_text(body).split()))


@contextmanager
def endpoint(answer: Callable[[dict[str, Any]], Answer], *, pause_s: float = 0.0005) -> Iterator[str]:
    """Its URL; `pause_s` lies between chunks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    server = asyncio.run_coroutine_threadsafe(_listen(answer, "127.0.0.1", 0, pause_s), loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:

        async def stop() -> None:
            server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def serve_forever(
    answer: Callable[[dict[str, Any]], Answer], host: str, port: int, *, pause_s: float = 0.0005
) -> None:
    await (await _listen(answer, host, port, pause_s)).serve_forever()


async def _listen(answer: Callable[[dict[str, Any]], Answer], host: str, port: int, pause_s: float) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), 0
                )
                body = json.loads(await reader.readexactly(length) or b"{}")
                await _reply(writer, answer(body) if length else (404, "nothing here"), pause_s)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port)


async def _reply(writer: asyncio.StreamWriter, answer: Answer, pause_s: float) -> None:
    if isinstance(answer, tuple):
        status, text = answer
        data = json.dumps({"error": {"message": text}}).encode()
        writer.write(
            b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        )
        writer.write(data)
        return
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for chunk in answer:
        _event(writer, json.dumps(chunk).encode())
        await asyncio.sleep(pause_s)
    _event(writer, b"[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _event(writer: asyncio.StreamWriter, data: bytes) -> None:
    line = b"data: %b\n\n" % data
    writer.write(b"%x\r\n%b\r\n" % (len(line), line))
