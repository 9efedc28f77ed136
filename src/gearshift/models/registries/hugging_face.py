"""Text classifiers of transformers, from a folder on disk."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.hardware import is_cuda
from gearshift.model import Arrays
from gearshift.support.extras import load_extra

CONFIG = "config.json"
MOST_TEXTS = 2
MOST_SAID = 500
NO_LENGTH = 1e12
"""No text has so many tokens: from here on a length stands for none."""


class TextClassifier:
    """A sequence classification of transformers, whose inputs are one text, or a pair of them.

    Texts are cut at the longest that tokenizer and positions of the model take. `classes_` are the labels of its
    configuration.
    """

    def __init__(self, model: Any, tokenizer: Any, torch: Any) -> None:
        self._model, self._tokenizer, self._torch = model, tokenizer, torch
        self.longest = _longest(model, tokenizer)
        labels = model.config.id2label
        self.classes_ = np.array([str(labels[number]) for number in range(len(labels))])

    def decode(self, inputs: Arrays) -> list[list[str]]:
        """The texts of each input; a missing one is empty."""
        if len(inputs) > MOST_TEXTS or any(
            array.dtype.kind not in "OSU" or array.ndim != 1 for array in inputs.values()
        ):
            named = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in inputs.items())
            raise ValueError(f"it takes one text for each row, or two, and was given {named}")
        return [[_text(value) for value in array.tolist()] for array in inputs.values()]

    def predict_proba(self, texts: list[list[str]]) -> NDArray[Any]:
        cut = {"truncation": True, "max_length": self.longest} if self.longest else {}
        tokens = self._tokenizer(*texts, padding=True, return_tensors="pt", **cut).to(self._model.device)
        with self._torch.inference_mode():
            scores: NDArray[Any] = self._torch.softmax(self._model(**tokens).logits.float(), dim=-1).cpu().numpy()
        return scores

    def example(self) -> dict[str, NDArray[Any]]:
        return {"text": np.array(["text"], dtype=object)}


def _longest(model: Any, tokenizer: Any) -> int | None:
    """The most tokens of a text, special ones among them; None where neither model nor tokenizer has a longest.

    A tokenizer whose files do not say it has a number of 30 digits.
    """
    configured = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    said = [tokenizer.model_max_length, getattr(configured, "max_position_embeddings", None)]
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:  # RoBERTa's begin after that of padding
            said.append(module.num_embeddings - padding - 1)
    known = [one for one in said if isinstance(one, int | float) and 0 < one < NO_LENGTH]
    return int(min(known)) if known else None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def open_hugging_face(reference: str, directory: Path, *, device_kind: str, where: str) -> TextClassifier:
    """Load the folder `reference`, relative to `directory`; nothing is downloaded, and no code in it is run.

    Raises `InvalidInput` where transformers or PyTorch is not installed, or the folder is none of a
    sequence classification.
    """
    folder = directory / reference
    require(
        (folder / CONFIG).is_file(), f"there is no {CONFIG} in {folder}", where=where, remedy="name a folder on disk"
    )
    transformers = load_extra("transformers", extra="transformers", where=where)
    torch = load_extra("torch", extra="transformers", where=where)
    transformers.logging.set_verbosity_error()
    named = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **named)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **named).eval()
    except Exception as error:
        raise InvalidInput(
            f"transformers cannot load {folder} ({' '.join(str(error).split())[:MOST_SAID]})",
            where=where,
            remedy="save model and tokenizer of a sequence classification there with save_pretrained",
        ) from error
    require(
        model.config.num_labels > 1,
        "it has one output, which is a regression",
        where=where,
        remedy="bring a classifier of two or more classes",
    )
    return TextClassifier(model.to("cuda:0") if is_cuda(device_kind) else model, tokenizer, torch)
