import asyncio
import os
import subprocess
from typing import Any

import pytest

from gearshift.support.process_end import ProcessEnd


def without(*_: Any) -> Any:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize("files", [True, False], ids=["by a file of the kernel", "by a thread"])
def test_the_end_of_a_child_is_heard_once_and_its_status_is_left(files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not files:
        monkeypatch.setattr(os, "pidfd_open", without)

    async def wait() -> tuple[int, int]:
        heard, ended = 0, asyncio.Event()

        def hear() -> None:
            nonlocal heard
            heard += 1
            ended.set()

        child = subprocess.Popen(["sh", "-c", "exit 7"])
        end = ProcessEnd(child.pid, hear)
        async with asyncio.timeout(20):
            await ended.wait()
        end.close()
        return heard, child.wait()

    assert asyncio.run(wait()) == (1, 7)


@pytest.mark.parametrize("files", [True, False])
def test_what_is_not_listened_to_any_more_says_nothing(files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not files:
        monkeypatch.setattr(os, "pidfd_open", without)

    async def leave() -> None:
        child = subprocess.Popen(["sleep", "60"])
        end = ProcessEnd(child.pid, lambda: pytest.fail("it was heard"))
        end.close()
        end.close()
        child.kill()
        child.wait()
        await asyncio.sleep(0)

    asyncio.run(leave())
