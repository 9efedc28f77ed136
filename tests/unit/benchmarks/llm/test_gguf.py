from pathlib import Path

import numpy as np
import pytest

from benchmarks.llm.gguf import in_8_bits, read_weights, write_gguf


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"token_embd.weight": (257, 32), "blk.0.attn_q.weight": (32, 32), "output_norm.weight": (32,)}
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_weights_are_read_back_from_floats_of_16_bits(tensors: dict[str, np.ndarray], tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", "tiny", tensors, heads=2, hidden=32, context=64)
    found = read_weights(tmp_path / "tiny.gguf")
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        np.testing.assert_allclose(found[name], tensor, rtol=1e-3, atol=1e-6)


def test_eight_bits_keep_each_number_to_half_a_step_of_its_block(tensors: dict[str, np.ndarray]) -> None:
    tensor = tensors["blk.0.attn_q.weight"]
    tensor[0] = 0.0
    rows = np.frombuffer(in_8_bits(tensor), np.dtype([("scale", "<f2"), ("numbers", "i1", 32)]))
    back = rows["scale"].astype(np.float32)[:, None] * rows["numbers"]
    steps = np.abs(tensor).max(1, keepdims=True) / 127
    assert (np.abs(back - tensor) <= 0.6 * steps + 1e-9).all()
    assert (back[0] == 0).all()
