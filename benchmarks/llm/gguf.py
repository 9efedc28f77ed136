"""Write a byte-level Llama as a GGUF file, the format of llama.cpp: header, metadata, tensors; and read its weights.

Each token is one byte, with the end of the answer as token 256. Weights are 16-bit floats, or 8-bit
numbers with a 16-bit scale for each 32 (Q8_0); norms are 32-bit floats. Rotary positions turn
neighbouring elements, as llama.cpp does for this architecture.
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
OF_FLOAT32, OF_FLOAT16, OF_8_BITS = 0, 1, 8
FILE_OF_FLOAT16, FILE_OF_8_BITS = 1, 7
BLOCK = 32
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
    path: Path,
    name: str,
    tensors: Mapping[str, NDArray[np.float32]],
    *,
    heads: int,
    hidden: int,
    context: int,
    eight_bits: bool = False,
) -> None:
    width = tensors["token_embd.weight"].shape[1]
    layers = sum(key.endswith("attn_q.weight") for key in tensors)
    letters = byte_letters()
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": name,
        "general.file_type": FILE_OF_8_BITS if eight_bits else FILE_OF_FLOAT16,
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
        kind = OF_FLOAT32 if tensor.ndim == 1 else OF_8_BITS if eight_bits else OF_FLOAT16
        shape = tensor.shape[::-1]
        head.append(_string(key) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        body = in_8_bits(tensor) if kind == OF_8_BITS else np.asarray(tensor, f"<f{2 if kind else 4}").tobytes()
        bodies.append(_padded(body))
        offset += len(bodies[-1])
    path.write_bytes(_padded(b"".join(head)) + b"".join(bodies))


def in_8_bits(tensor: NDArray[np.float32]) -> bytes:
    """Rows in blocks of 32, each a scale and its numbers from -127 to 127."""
    blocks = tensor.reshape(-1, BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    numbers = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    rows = np.empty(len(blocks), np.dtype([("scale", "<f2"), ("numbers", "i1", BLOCK)]))
    rows["scale"], rows["numbers"] = scale[:, 0], numbers
    return rows.tobytes()


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of a file that `write_gguf` wrote in floats."""
    data = path.read_bytes()
    _, tensors, values = struct.unpack_from("<IQQ", data, 4)
    at = 24
    for _ in range(values):
        at = _after_value(data, at + 8 + _count(data, at))
    found = []
    for _ in range(tensors):
        size = _count(data, at)
        name, at = data[at + 8 : at + 8 + size].decode(), at + 8 + size
        (dimensions,) = struct.unpack_from("<I", data, at)
        *shape, kind, offset = struct.unpack_from(f"<{dimensions}QIQ", data, at + 4)
        found.append((name, shape[::-1], kind, offset))
        at += 4 + 8 * dimensions + 12
    begin = at + -at % ALIGNMENT
    return {
        name: np.frombuffer(data, f"<f{2 if kind else 4}", int(np.prod(shape)), begin + offset)
        .reshape(shape)
        .astype(np.float32)
        for name, shape, kind, offset in found
    }


def _count(data: bytes, at: int) -> int:
    (count,) = struct.unpack_from("<Q", data, at)
    return int(count)


def _after_value(data: bytes, at: int) -> int:
    """The place behind a value whose type stands at `at`."""
    (kind,) = struct.unpack_from("<I", data, at)
    if kind == STRING:
        return at + 12 + _count(data, at + 4)
    if kind != ARRAY:
        return at + 4 + (1 if kind == BOOL else 4)
    (of,), count, at = struct.unpack_from("<I", data, at + 4), _count(data, at + 8), at + 16
    for _ in range(count):
        at += 8 + _count(data, at) if of == STRING else 4
    return at


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
