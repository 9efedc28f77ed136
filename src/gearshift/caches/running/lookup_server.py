"""The process that looks into learned caches beside a model, `python -m gearshift.caches.running.lookup_server`.

    model's process (`lookup_process`)                       this process
    hidden output --copied into one memory--   Ask   -->     looks it up
    its answer    <--read from the other one-- Found --      writes probabilities and hits

Each memory has one writer. Messages on the socket announce its content, so a waiting process
sleeps, and data written before a message is there when the message arrives. The process ends when
its socket closes, thus with its parent.
"""

import argparse
import socket
from collections.abc import Mapping
from mmap import ACCESS_READ, mmap
from typing import Annotated

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load

from gearshift.caches.network.learned_cache import LearnedCache, filled
from gearshift.caches.running.row_lookup import Lookup, lookup_of
from gearshift.support.processors import pin

MOST_BYTES = 1 << 28
"""Size of either memory; only pages that are written take room."""
FIRST_BYTE = 64
"""Where data begins. Before it stands a lookup number: in the memory of hidden outputs the
first that is still wanted, in that of answers the last that was done or dropped."""
MOST_MESSAGE_BYTES = 1 << 16
MOST_WHY = 1000

Bytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]


class ToLook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cache after a layer; its weights are in a separate file."""

    layer: int
    variant: str
    shape: tuple[int, ...]


class Use(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Look into these caches; a descriptor of their weights (safetensors) is attached."""

    caches: tuple[ToLook, ...]
    classes: int


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Look up a float32 hidden output (n, ...) at byte `begins`; answer at `answer_begins`."""

    number: int
    layer: int
    shape: tuple[int, ...]
    begins: Bytes
    answer_begins: Bytes


class Ready(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The process has begun."""


class Found(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The answer to this lookup is written; `not_finite` of its rows held NaN or infinity."""

    number: int
    not_finite: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """This lookup raised an error."""

    number: int
    why: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The process cannot go on."""

    why: str


Asked = Use | Ask
Told = Ready | Found | Failed | Ended


def answer_bytes(rows: int, classes: int) -> int:
    """Size of an answer: probabilities (n, classes), float32, set for hits only, and hits (n,)."""
    return rows * (4 * classes + 1)


def answer_in(memory: mmap, begins: int, rows: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    probabilities = np.frombuffer(memory, np.float32, rows * classes, begins).reshape(rows, classes)
    return probabilities, np.frombuffer(memory, np.bool_, rows, begins + 4 * rows * classes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="gearshift.caches.running.lookup_server")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--hidden", type=int, required=True, help="descriptor of the memory of hidden outputs")
    parser.add_argument("--answers", type=int, required=True, help="descriptor of the memory of answers")
    parser.add_argument("--cores", required=True, help="processors to run on, by number")
    arguments = parser.parse_args()
    cores = {int(core) for core in arguments.cores.split(",")}
    pin(cores)
    torch.set_num_threads(len(cores))
    import gearshift.caches.running.kernel  # noqa: F401  # compiled or loaded before the first lookup

    hidden, answers = mmap(arguments.hidden, MOST_BYTES), mmap(arguments.answers, MOST_BYTES)
    with socket.socket(fileno=arguments.fd) as sock, torch.inference_mode():
        try:
            sock.send(msgspec.msgpack.encode(Ready()))
            main_loop(sock, hidden, answers)
        except OSError:
            pass  # the parent is gone
    return 0


def main_loop(sock: socket.socket, hidden: mmap, answers: mmap) -> None:
    """Do what is asked, in order, except given-up lookups, until the socket closes."""
    decoder, first_wanted = msgspec.msgpack.Decoder(Asked), np.frombuffer(hidden, np.int64, 1)
    last_answered = np.frombuffer(answers, np.int64, 1)
    caches: Mapping[int, tuple[LearnedCache, Lookup]] = {}
    while True:
        data, descriptors, _, _ = socket.recv_fds(sock, MOST_MESSAGE_BYTES, 1)
        if not data:
            return
        match decoder.decode(data):
            case Use() as use:
                try:
                    caches = _caches_of(use, descriptors[0])
                except Exception as error:  # noqa: BLE001 - the model's process goes on without
                    sock.send(msgspec.msgpack.encode(Ended(why=_told(error))))
                    return
            case Ask() as ask if ask.number >= first_wanted[0]:
                found = _look(*caches[ask.layer], ask, hidden, answers)
                last_answered[0] = ask.number
                sock.send(msgspec.msgpack.encode(found))
            case Ask() as ask:
                last_answered[0] = ask.number


def _look(cache: LearnedCache, lookup: Lookup, ask: Ask, hidden: mmap, answers: mmap) -> Found | Failed:
    """If the lookup was given up, the hidden output may change, but nobody reads the answer."""
    count = int(torch.Size(ask.shape).numel())
    try:
        before = cache.not_finite
        given = torch.frombuffer(hidden, dtype=torch.float32, count=count, offset=ask.begins).view(ask.shape)
        probabilities, hits = lookup.rows(given)
        to_probabilities, to_hits = answer_in(answers, ask.answer_begins, len(hits), cache.classes)
        to_probabilities[hits], to_hits[:] = probabilities, hits
        return Found(number=ask.number, not_finite=cache.not_finite - before)
    except Exception as error:  # noqa: BLE001 - fails the batch in the model's process
        return Failed(number=ask.number, why=_told(error))


def _caches_of(use: Use, descriptor: int) -> dict[int, tuple[LearnedCache, Lookup]]:
    with open(descriptor, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as weights:
        entries = [(one.layer, one.variant, one.shape) for one in use.caches]
        caches = filled(entries, use.classes, load(bytes(weights)))
    return {layer: (cache, lookup_of(cache)) for layer, cache in caches.items()}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MOST_WHY]


if __name__ == "__main__":
    raise SystemExit(main())
