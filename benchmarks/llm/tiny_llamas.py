"""Train tiny byte-level Llamas on lines about orders (`gearshift.verbs.init.order_lines`), and export them to GGUF.

    python -m benchmarks.llm.tiny_llamas small --out DIR [--steps 2500]
    python -m benchmarks.llm.tiny_llamas large --grow DIR/medium.gguf --eight-bits --out DIR

Sizes: small (0.12 million parameters), medium (0.64) and large (2.4). A step of 32 lines takes about
0.08 processor seconds for small and 0.25 for medium, on one thread. Large begins as medium does its
work: each of medium's layers is followed by three that add nothing at first, so that a few hundred
steps are enough. Prints the share of right answers to unseen lines, and how well the mean
log-probability tells right from wrong ones. Needs `pip install 'gearshift[torch]'`.
"""

import argparse
import json
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.llm.gguf import END, read_weights, write_gguf
from gearshift.verbs.init.order_lines import OrderLine, order_line, order_lines, right

LONGEST = 192
CONTEXT = 512
VOCABULARY = 257
TEST_SEED = 7_000_001


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    hidden: int
    rate: float
    steps: int


SIZES = {
    "small": Size(64, 2, 2, 192, 5e-3, 2500),
    "medium": Size(128, 3, 2, 352, 3e-3, 1350),
    "large": Size(128, 12, 2, 352, 3e-4, 300),
}


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        width, hidden = size.width, size.hidden
        self.attn_norm, self.ffn_norm = Norm(width), Norm(width)
        self.attn_q, self.attn_k, self.attn_v, self.attn_output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.ffn_gate, self.ffn_up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.ffn_down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        rows, length, width = x.shape
        normed = self.attn_norm(x)
        q, k, v = (
            one(normed).view(rows, length, self.heads, -1).transpose(1, 2)
            for one in (self.attn_q, self.attn_k, self.attn_v)
        )
        seen = functional.scaled_dot_product_attention(turned(q, turn), turned(k, turn), v, is_causal=True)
        x = x + self.attn_output(seen.transpose(1, 2).reshape(rows, length, width))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Llama(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.token_embd = nn.Embedding(VOCABULARY, size.width)
        self.blk = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.output_norm = Norm(size.width)
        nn.init.normal_(self.token_embd.weight, std=0.05)
        half = size.width // size.heads // 2
        angle = torch.outer(torch.arange(CONTEXT), 10_000.0 ** (-torch.arange(half) / half))
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, (self.cos[:length], self.sin[:length]))
        return self.output_norm(x) @ self.token_embd.weight.T


def turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions over neighbouring pairs of elements (rows, heads, length, elements)."""
    cos, sin = turn
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def grow(model: Llama, weights: Mapping[str, np.ndarray]) -> None:
    """Begin as a model of the same width with fewer layers: the layers between its own add nothing at first."""
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blk."))
    each = model.size.layers // layers
    state = {name: torch.from_numpy(value) for name, value in weights.items() if not name.startswith("blk.")}
    for name, value in weights.items():
        if name.startswith("blk."):
            _, number, rest = name.split(".", 2)
            state[f"blk.{int(number) * each}.{rest}"] = torch.from_numpy(value)
    model.load_state_dict(state, strict=False)
    for number, block in enumerate(model.blk):
        if number % each:
            nn.init.zeros_(block.attn_output.weight)
            nn.init.zeros_(block.ffn_down.weight)


def prompt_bytes(text: str) -> list[int]:
    return [*f"<{text}\n>".encode()]


def batch_of(lines: list[OrderLine]) -> tuple[Tensor, Tensor]:
    """Tokens, and the next ones; -100 where the next is of a prompt or of the padding."""
    pairs = [(prompt_bytes(line.text), [*line.answer.encode(), END]) for line in lines]
    longest = min(LONGEST, max(len(prompt) + len(answer) for prompt, answer in pairs)) - 1
    tokens = np.full((len(lines), longest), END)
    target = np.full((len(lines), longest), -100)
    for row, (prompt, answer) in enumerate(pairs):
        both = [*prompt, *answer]
        tokens[row, : len(both) - 1] = both[:-1]
        target[row, len(prompt) - 1 : len(both) - 1] = answer
    return torch.from_numpy(tokens), torch.from_numpy(target)


def train(model: Llama, steps: int, seed: int) -> None:
    generator, begun = random.Random(seed), time.process_time()
    optimizer = torch.optim.Adam(model.parameters(), lr=model.size.rate, betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = model.size.rate * min(1.0, (step + 1) / 100) * (1 - step / steps)
        tokens, target = batch_of([order_line(generator) for _ in range(32)])
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} of {steps}, {time.process_time() - begun:.0f} s, loss {loss.item():.4f}", flush=True)


@torch.inference_mode()
def answers(model: Llama, lines: list[OrderLine]) -> tuple[list[str], list[float]]:
    """The most probable answers, and the mean log-probability of their tokens."""
    texts, means = [], []
    for line in lines:
        tokens, said = prompt_bytes(line.text), []
        while len(said) < 40:
            scores = functional.log_softmax(model(torch.tensor([tokens]))[0, -1], -1)
            token = int(scores.argmax())
            said.append(float(scores[token]))
            if token == END:
                break
            tokens.append(token)
        texts.append(bytes(tokens[len(prompt_bytes(line.text)) :]).decode("utf-8", "replace"))
        means.append(float(np.mean(said)))
    return texts, means


def auroc(certainty: np.ndarray, is_right: np.ndarray) -> float:
    sure, unsure = certainty[is_right], certainty[~is_right]
    return float((sure[:, None] > unsure).mean() + 0.5 * (sure[:, None] == unsure).mean())


def exported(model: Llama) -> dict[str, np.ndarray]:
    names = {"token_embd.weight", "output_norm.weight"}
    return {
        name: value.numpy(force=True)
        for name, value in model.state_dict().items()
        if name in names or name.startswith("blk.")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--lines", type=int, default=400, help="unseen lines to judge by")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grow", type=Path, help="begin with this smaller model")
    parser.add_argument("--eight-bits", action="store_true", help="write weights of 8 bits")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    size = SIZES[args.size]
    model = Llama(size)
    if args.grow is not None:
        grow(model, read_weights(args.grow))
    parameters = sum(one.numel() for one in model.parameters())
    print(f"{args.size}: {parameters:,} parameters, {asdict(size)}", flush=True)
    steps = args.steps or size.steps
    train(model, steps, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{args.size}.gguf"
    write_gguf(
        path,
        f"order-lines-{args.size}",
        exported(model),
        heads=size.heads,
        hidden=size.hidden,
        context=CONTEXT,
        eight_bits=args.eight_bits,
    )
    lines = order_lines(args.lines, TEST_SEED)
    texts, means = answers(model, lines)
    good = np.array([right(text, line.answer) for text, line in zip(texts, lines, strict=True)]) == 1
    both = bool(good.any() and not good.all())
    facts = {
        "model": args.size,
        "parameters": parameters,
        "steps": steps,
        "right": float(good.mean()),
        "auroc_mean": auroc(np.array(means), good) if both else None,
        "bytes": path.stat().st_size,
    }
    print(json.dumps(facts))
    for text, line in list(zip(texts, lines, strict=True))[:5]:
        print(f"{line.text!r}: {text!r}, right is {line.answer!r}")


if __name__ == "__main__":
    main()
