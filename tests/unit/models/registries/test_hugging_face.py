"""A little text classifier of transformers with random weights, written to disk and loaded through a project."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import read_project
from gearshift.models.loading import load_model
from gearshift.models.registries.hugging_face import open_hugging_face

PROJECT = 'operator = "t"\nsamples = "m.py:samples"\n[models.m]\nload = "huggingface:model"\n'
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


@pytest.fixture(scope="module")
def transformers() -> Any:
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("hugging-face")
    (path / "model").mkdir()
    (path / "model" / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab_file=str(path / "model" / "vocab.txt")).save_pretrained(path / "model")
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label={0: "negative", 1: "neutral", 2: "positive"},
        label2id={"negative": 0, "neutral": 1, "positive": 2},
    )
    transformers.BertForSequenceClassification(config).save_pretrained(path / "model")
    (path / "gearshift.toml").write_text(PROJECT)
    return path


@pytest.mark.long
def test_texts_get_a_label_of_the_configuration_and_probabilities(folder: Path) -> None:
    model = load_model(read_project(folder / "gearshift.toml"), folder, "m")
    answer = model.run({"text": np.array(["good film", "bad", None], dtype=object)})
    assert model.classes == ("negative", "neutral", "positive")
    assert set(answer.outputs["label"].tolist()) <= set(model.classes)
    np.testing.assert_allclose(answer.outputs["scores"].sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.long
def test_a_text_has_the_same_answer_alone_and_beside_a_longer_one(folder: Path) -> None:
    model = load_model(read_project(folder / "gearshift.toml"), folder, "m")
    alone = model.run({"text": np.array(["good"], dtype=object)}).outputs["scores"]
    beside = model.run({"text": np.array(["good", "bad film bad film"], dtype=object)}).outputs["scores"]
    np.testing.assert_allclose(alone[0], beside[0], atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("said", [None, 10, 10**30])
@pytest.mark.parametrize(("kind", "positions"), [("Bert", 16), ("Roberta", 16 + 2), ("DistilBert", 16)])
def test_long_texts_are_cut_at_what_model_and_tokenizer_take(
    transformers: Any, folder: Path, tmp_path: Path, kind: str, positions: int, said: int | None
) -> None:
    """RoBERTa's first two positions are for none of the text's tokens."""
    shutil.copytree(folder / "model", tmp_path / "m")
    little = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    if kind == "DistilBert":
        little = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    padding = 1 if kind == "Roberta" else 0
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(WORDS), max_position_embeddings=positions, pad_token_id=padding, **little
    )
    getattr(transformers, f"{kind}ForSequenceClassification")(config).save_pretrained(tmp_path / "m")
    settings = tmp_path / "m" / "tokenizer_config.json"
    kept = {key: value for key, value in json.loads(settings.read_text()).items() if key != "model_max_length"}
    settings.write_text(json.dumps(kept | ({} if said is None else {"model_max_length": said})))
    model = open_hugging_face("m", tmp_path, device_kind="cpu", where="field load")
    assert model.longest == (10 if said == 10 else 16)
    short, long, longer = model.predict_proba([["bad", "good " * 16, "good " * 100]])
    np.testing.assert_allclose(long, longer, rtol=1e-5)
    assert np.isfinite(short).all()
    pair = model.predict_proba([["good " * 100], ["film " * 100]])
    assert pair.shape == (1, 2)


@pytest.mark.long
def test_numbers_are_refused_with_what_it_takes(folder: Path) -> None:
    model = load_model(read_project(folder / "gearshift.toml"), folder, "m")
    with pytest.raises(Exception, match="it takes one text for each row"):
        model.run({"text": np.zeros((2, 3))})


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"there is no config.json in .*nowhere; name a folder on disk"):
        open_hugging_face("nowhere", tmp_path, device_kind="cpu", where="field load")
