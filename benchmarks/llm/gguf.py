"""Write a byte-level Llama as a GGUF file, the format of llama.cpp: header, metadata, tensors.

Each token is one byte, with the end of the answer as token 256. Weights are 16-bit floats, norms
32-bit. Rotary positions turn neighbouring elements, as llama.cpp does for this architecture.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

END = 256
ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, CONTROL = 1, 3
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<{{ message['content'] }}{% endif %}{% endfor %}"
    "{{ '\\n>' }}"
)
"""A newline after `{% endfor %}` would be dropped, so the end is an expression."""

Value = str | bool | int | float | Sequence[str] | Sequence[int]


def byte_letters() -> list[str]:
    """A letter for each byte, as byte-level tokenizers write them: printable ones stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 256
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(more)
            more += 1
    return [letters[byte] for byte in range(256)]


def write_gguf(
    path: Path, name: str, tensors: Mapping[str, NDArray[np.float32]], *, heads: int, hidden: int, context: int
) -> None:
    width = tensors["token_embd.weight"].shape[1]
    layers = sum(key.endswith("attn_q.weight") for key in tensors)
    letters = byte_letters()
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": name,
        "general.file_type": 1,
        "llama.context_length": context,
        "llama.embedding_length": width,
        "llama.block_count": layers,
        "llama.feed_forward_length": hidden,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": width // heads,
        "llama.rope.freq_base": 10_000.0,
        "llama.vocab_size": 257,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*letters, "<end>"],
        "tokenizer.ggml.token_type": [NORMAL] * 256 + [CONTROL],
        "tokenizer.ggml.merges": [f"{letters[0]} {letters[0]}"],
        "tokenizer.ggml.bos_token_id": END,
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    bodies, offset = [], 0
    for key, tensor in tensors.items():
        half = tensor.ndim == 2
        body = np.ascontiguousarray(tensor, dtype="<f2" if half else "<f4").tobytes()
        shape = tensor.shape[::-1]
        head.append(_string(key) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, int(half), offset))
        bodies.append(_padded(body))
        offset += len(bodies[-1])
    path.write_bytes(_padded(b"".join(head)) + b"".join(bodies))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case str():
            return struct.pack("<I", STRING) + _string(value)
        case bool():
            return struct.pack("<I?", BOOL, value)
        case int():
            return struct.pack("<II", U32, value)
        case float():
            return struct.pack("<If", F32, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(_string(str(one)) for one in value)
    return struct.pack(f"<IIQ{len(value)}i", ARRAY, I32, len(value), *(int(one) for one in value))
