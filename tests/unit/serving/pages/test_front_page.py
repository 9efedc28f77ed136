"""The request that a server prints and shows."""

import json
import subprocess

from gearshift.model import TensorSpec
from gearshift.serving.door.signature import Signature
from gearshift.serving.openai.served import shown_at
from gearshift.serving.operate.kind import Shown
from gearshift.serving.pages.front_page import example_call, front_page, shown_tensors
from gearshift.v2.records import example_record

IMAGE = TensorSpec(name="image", datatype="FP32", shape=(-1, 28, 28))
TEXT = TensorSpec(name="it's", datatype="BYTES", shape=(-1,))


def served(*inputs: TensorSpec) -> Shown:
    return shown_tensors(Signature(name="task", inputs=inputs, outputs=()))


def sent(call: str) -> object:
    """What the command sends, with `cat` in the place of curl."""
    if call.startswith("python3"):
        said = subprocess.run(["sh", "-c", call.split(" | ", maxsplit=1)[0]], capture_output=True, check=True).stdout
    else:
        said = subprocess.run(
            ["sh", "-c", "printf %s " + call.split(" -d ")[1]], capture_output=True, check=True
        ).stdout
    return json.loads(said)


def test_a_short_record_is_in_the_command() -> None:
    call = example_call(served(TEXT), "http://127.0.0.1:8000", has_keys=False)
    assert call.startswith("curl http://127.0.0.1:8000/predict/task -d '{")
    assert sent(call) == {"it's": "text"}


def test_a_long_record_is_written_by_the_command_too() -> None:
    call = example_call(served(IMAGE, TEXT), "http://127.0.0.1:8000", has_keys=False)
    assert len(call) < 200
    assert sent(call) == example_record({"image": IMAGE, "it's": TEXT})


def test_a_key_and_a_certificate_have_their_place() -> None:
    call = example_call(served(TEXT), "https://127.0.0.1:8000", has_keys=True, certificate="cert.pem")
    assert "--cacert 'cert.pem' -H 'Authorization: Bearer KEY' -d" in call


def test_language_models_have_a_request_of_their_own() -> None:
    chat, text = shown_at("/v1/chat/completions", "chat"), shown_at("/v1/completions", "plain")
    call = example_call(chat, "http://127.0.0.1:8000", has_keys=True)
    assert call.startswith("curl http://127.0.0.1:8000/v1/chat/completions -H 'Authorization: Bearer KEY' -d '{")
    assert sent(call) == {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
    assert sent(example_call(text, "http://127.0.0.1:8000", has_keys=False)) == {"model": "plain", "prompt": "Hello"}
    page = front_page([chat], has_keys=False).decode()
    assert "<h1>Gearshift: chat</h1>" in page
    assert "/v1/chat/completions" in page


def test_the_live_page_is_linked_where_there_is_one() -> None:
    assert 'href="/dashboard"' in front_page([served(TEXT)], has_keys=False).decode()
    assert "/dashboard" not in front_page([served(TEXT)], has_keys=False, has_dashboard=False).decode()
