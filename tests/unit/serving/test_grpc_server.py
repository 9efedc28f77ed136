import sys

import pytest

from gearshift.errors import InvalidInput
from gearshift.serving import serve
from gearshift.serving.settings import ServerSettings
from tests.little_task import write_little_task


@pytest.mark.parametrize(
    "settings",
    [
        {"grpc_port": -1},
        {"grpc_port": 65_536},
        {"most_grpc_calls": 0},
        {"most_grpc_calls": 10**11},
        {"largest_body_bytes": 1 << 32},
        {"keep_alive_s": 3_000_000},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    (name,) = settings
    with pytest.raises(InvalidInput, match=f"{name} is"):
        ServerSettings(**settings)


def test_serving_without_the_library_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    plan = write_little_task(tmp_path)
    with pytest.raises(InvalidInput, match=r"--grpc-port: needs grpcio.*pip install 'gearshift\[grpc\]'"):
        serve.serve(plan, settings=ServerSettings(port=0, grpc_port=0), backend="emulated")
