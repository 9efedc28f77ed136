"""A pipeline of scikit-learn that was fitted on a data frame of texts and gaps, from samples to a client's frame."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gearshift
from tests.end_to_end.test_serve_models import served

pytestmark = pytest.mark.long
pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

MODELS = """
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import gearshift

random = np.random.default_rng(0)
frame = pd.DataFrame({"town": random.choice(["Ulm", "Bonn", None], 400), "age": random.integers(18, 80, 400) * 1.0})
frame.loc[::5, "age"] = np.nan
labels = np.where(frame["town"] == "Ulm", "yes", "no")

def load_samples():
    return gearshift.Samples(frame, labels=labels)

def load():
    columns = ColumnTransformer(
        [("texts", OneHotEncoder(handle_unknown="ignore"), ["town"]), ("numbers", SimpleImputer(), ["age"])]
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(frame, labels)
"""


def test_texts_and_gaps_of_a_frame_reach_the_model_and_answers_are_a_frame(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    asked = pandas.DataFrame({"town": ["Ulm", "Bonn", None], "age": [30.0, np.nan, 50.0]})
    with served("models.py:load", folder=tmp_path) as (_, call):
        found = re.search("http://[^/]+", call)
        assert found is not None
        url = found[0]
        records = json.dumps([{"town": "Ulm", "age": None}, {"town": None, "age": 44}])
        told = subprocess.run(["curl", "-s", f"{url}/predict/models", "-d", records], capture_output=True, check=True)
        with gearshift.Client(url, "models") as client:
            answer = client.infer(asked)
            many = client.infer(pandas.concat([asked] * 700, ignore_index=True))
    assert [each["label"] for each in json.loads(told.stdout)] == ["yes", "no"], told.stdout
    frame = answer.frame()
    assert frame["label"].tolist() == ["yes", "no", "no"]
    assert (frame["scores.1"] > 0.5).tolist() == [True, False, False]
    assert many.frame()["label"].tolist() == ["yes", "no", "no"] * 700, "more rows than may wait"
