"""The files of a project of a pipeline: a strip of handwritten digits is read as one number."""

PROJECT = """# A strip of handwritten digits is split, each digit is read, and the digits are joined to a number.
# References are file.py:function, relative to this file.
# Requests go to /v2/models/digits/infer.

[operators.split]
function = "models.py:split"        # a plain function: arrays by name, and back

[operators.read]
certainty = "top_two_difference"    # or highest_probability, negative_entropy, file.py:function

[operators.read.models.logistic]
load = "models.py:load_logistic"

[operators.read.models.network]
load = "models.py:load_network"

[operators.read.models.forest]
load = "models.py:load_forest"

[operators.read.models.large_forest]
load = "models.py:load_large_forest"

[operators.join]
function = "models.py:join"

[pipelines.digits]
output = "join"                     # its answer is the request's
samples = "models.py:load_samples"  # labelled requests, some hundred of them
edges = [
    {from = "split", to = "read"},
    {from = "read", to = "join"},
]

[pipelines.digits.nodes.split]
operator = "split"
inputs = {strip = "strip"}          # the function's input, and the request's tensor

[pipelines.digits.nodes.read]       # runs once for each row of split's output `parts`
operator = "read"
inputs = {image = "split.parts"}
fan_out = {per_row = "split.parts", most = 8}

[pipelines.digits.nodes.join]       # runs once for all rows
operator = "join"
inputs = {labels = "read.label"}
fan_in = true

[profile]
batch_sizes = [1, 2, 4, 8, 16]
repeats = 10
longest_s = 2.0
"""

MODELS = '''"""Functions and models of a pipeline that reads strips of handwritten digits; put your own in their place.

The answer to a strip is right only if every digit is.  Written as a composition, the pipeline is:

    p = gearshift.Pipeline("digits", samples="models.py:load_samples")
    parts = p.split(strip=p.request.strip).parts
    labels = [p.read(image=part).label for part in parts.each(most=8)]
    p.answer(p.join(labels=labels))
    print(p.toml())

The digits are the 1,797 images of 8x8 pixels that scikit-learn ships, made harder by noise.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import gearshift

SIDE, GAP, MOST = 8, 2, 6  # pixels of a digit, dark pixels after it, digits of the longest strip
VALIDATION = 500  # images that no model is trained on


def load_samples():
    """Strips of 2 to 6 digits, the number on each, and the digits themselves, which are the labels of node `read`."""
    random = np.random.default_rng(1)
    images, digits = noisy_digits("validation", copies=1, seed=2)
    strips, numbers, labels = [], [], []
    for _ in range(600):
        chosen = random.integers(0, len(images), random.integers(2, MOST + 1))
        strips.append(strip_of(images[chosen]))
        labels.append(digits[chosen].tolist())
        numbers.append(number(labels[-1]))
    return gearshift.Samples({"strip": np.stack(strips)}, labels=np.array(numbers), node_labels={"read": labels})


def split(strip):
    """Cut strips (n, 8, 60) where they are dark; one array of images (digits, 64) for each strip."""
    places = strip.reshape(len(strip), SIDE, MOST, SIDE + GAP)[..., :SIDE].transpose(0, 2, 1, 3)
    places = places.reshape(len(strip), MOST, SIDE * SIDE)
    return {"parts": [images[images.max(axis=1) > 0] for images in places]}


def join(labels):
    """The digits of each strip, in the order of its images, as one number."""
    return {"label": [number(digits) for digits in labels]}


def number(digits):
    return "no. " + "".join(str(int(digit)) for digit in digits)  # so that 07 is not 7


def strip_of(images):
    strip = np.zeros((SIDE, MOST, SIDE + GAP), np.float32)
    for place, image in enumerate(images):
        strip[:, place, :SIDE] = image.reshape(SIDE, SIDE)
    return strip.reshape(SIDE, MOST * (SIDE + GAP))


def load_logistic():
    """Cheap, and often right."""
    return LogisticRegression(max_iter=100).fit(*noisy_digits("training", copies=1, seed=3))


def load_network():
    network = MLPClassifier((128,), tol=0.01, n_iter_no_change=3, learning_rate_init=0.003, random_state=0)
    return network.fit(*noisy_digits("training", copies=8, seed=4))


def load_forest():
    return ExtraTreesClassifier(60, random_state=0).fit(*noisy_digits("training", copies=4, seed=5))


def load_large_forest():
    """Dear, and right most often."""
    return ExtraTreesClassifier(300, random_state=0).fit(*noisy_digits("training", copies=8, seed=6))


def noisy_digits(which, copies, seed):
    """Images (n, 64) from 0 to 1, and the digit on each; training and validation share no original."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    rows = np.tile(order[:VALIDATION] if which == "validation" else order[VALIDATION:], copies)
    random = np.random.default_rng(seed)
    faded = data.data[rows] / 16 * random.uniform(0.6, 1.0, (len(rows), 1))
    noise = random.normal(0, 0.12, faded.shape)
    return np.clip(faded + noise, 0.01, 1).astype(np.float32), data.target[rows]
'''
