import asyncio
import socket

import pytest

from gearshift.errors import NoAnswer
from gearshift.load_generator.language.open_loop import Outgoing, send_all


def test_requests_are_sent_where_an_event_loop_runs_too() -> None:
    """As in a notebook; nobody listens at the port."""

    async def notebook(url: str) -> None:
        send_all(url, [Outgoing(id="a", due_s=0.0, record=0, body={})], key=None, longest_s=5.0)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NoAnswer, match="cannot be reached"):
            asyncio.run(notebook(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
