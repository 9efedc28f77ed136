"""Write a pipeline as a composition of its operators, measure it on strips of handwritten digits, and look at it."""

import tempfile
from pathlib import Path

import gearshift

pipeline = gearshift.Pipeline("digits", samples="models.py:load_samples")
parts = pipeline.split(strip=pipeline.request.strip).parts
labels = [pipeline.read(image=part).label for part in parts.each(most=8)]
pipeline.answer(pipeline.join(labels=labels))

OPERATORS = """
[operators.split]
function = "models.py:split"
[operators.read.models.logistic]
load = "models.py:load_logistic"
[operators.read.models.network]
load = "models.py:load_network"
[operators.join]
function = "models.py:join"
[profile]
batch_sizes = [1, 4, 16]
repeats = 5
longest_s = 0.5
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    gearshift.init(folder, pipeline=True)  # for its models.py; the project file is written anew
    (folder / "gearshift.toml").write_text(OPERATORS + pipeline.toml())
    made = gearshift.profile(folder)

    for operator, profile in made.operators.items():
        accuracy = dict(zip(profile.models, profile.predictions.quality.mean(axis=1).round(3).tolist(), strict=True))
        print(f"operator {operator}: {accuracy}")
    print(f"items by node: {made.items_by_node('digits')}")
    print(f"all digits of a strip are right for {made.pipelines['digits'].right:.1%} of the strips")
