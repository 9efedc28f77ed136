"""Gradient boosting of other libraries, fitted on a data frame with categories and gaps, measured and served."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.test_serve_models import served

pytestmark = pytest.mark.long
pandas = pytest.importorskip("pandas")

ROWS = """
import numpy as np
import pandas as pd
import gearshift

random = np.random.default_rng(0)
towns = ["Ulm", "Bonn", "Aalen"]
frame = pd.DataFrame({"town": random.choice(towns, 600), "age": random.integers(18, 80, 600) * 1.0})
labels = (frame["town"] == "Ulm").astype(int).to_numpy()
frame.loc[::7, "age"] = np.nan

def load_samples():
    return gearshift.Samples(frame, labels=labels)

def load():
    return model().fit(prepared(frame), labels)
"""
CATEGORICAL = """
def prepared(rows):
    return rows.assign(town=pd.Categorical(rows["town"], categories=towns))
"""
MODELS = {
    "xgboost": """
import xgboost
def model():
    return xgboost.XGBClassifier(n_estimators=20, enable_categorical=True)
"""
    + CATEGORICAL,
    "lightgbm": """
import lightgbm
def model():
    return lightgbm.LGBMClassifier(n_estimators=20, verbose=-1)
"""
    + CATEGORICAL,
    "catboost": """
import catboost
def model():
    return catboost.CatBoostClassifier(iterations=20, cat_features=["town"], verbose=0, allow_writing_files=False)

def prepared(rows):
    return rows
""",
}
PROJECT = """
operator = "risk"
samples = "models.py:load_samples"
[models.boosted]
load = "models.py:load"
"""
CATEGORIES = 'categories.town = ["Ulm", "Bonn", "Aalen"]\n'
RECORDS = [{"town": "Ulm", "age": None}, {"town": "Bonn", "age": 44}, {"town": "Aalen", "age": 20}]


@pytest.mark.parametrize("library", MODELS)
def test_a_model_that_was_fitted_on_categories_answers_as_it_was_taught(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (tmp_path / "models.py").write_text(ROWS + MODELS[library])
    (tmp_path / "gearshift.toml").write_text(PROJECT + CATEGORIES * (library != "catboost"))
    with served("gearshift.toml", "--keep", "kept", folder=tmp_path) as (_, call):
        found = re.search("http://[^/]+", call)
        assert found is not None
        asked = ["curl", "-s", f"{found[0]}/predict/risk", "-d", json.dumps(RECORDS)]
        told = subprocess.run(asked, capture_output=True, check=True)
    assert [each["label"] for each in json.loads(told.stdout)] == [1, 0, 0], told.stdout
    right = np.load(tmp_path / "kept" / "profile" / "predictions.npz")["quality"]
    assert right.mean() > 0.99
