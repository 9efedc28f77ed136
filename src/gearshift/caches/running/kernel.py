"""One row's lookup, compiled: a dozen operations on few numbers cost less than one PyTorch call."""

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]

from gearshift.support.compiled import called_by_address

FLOATS, INTEGERS = map(types.CPointer, (types.float32, types.int64))
ROUNDED_ANYHOW = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered; NaN and infinity are kept."""

SIZES = 9
CHANNELS, HEIGHT, WIDTH, SIDE, RECTIFIED, HIDDEN, CLASSES, SELECTOR, TOP = range(SIZES)
"""Positions in `sizes`: the row (channels, height, width); cells per side of average pooling, 0
for none; whether a ReLU comes first; widths of the predictor (0 if it is one linear layer)
and the selector; and how many of the highest probabilities the selector sees."""


@njit(fastmath=ROUNDED_ANYHOW)
def _positive(x):  # type: ignore[no-untyped-def]
    return np.float32(0) if x < 0 else x  # NaN stays


@njit(fastmath=ROUNDED_ANYHOW, error_model="numpy")
def _features(hidden, sizes):  # type: ignore[no-untyped-def]
    """Input of the first linear layer; cells overlap if a side is not a multiple, as in PyTorch.

    Lines of pixels are summed first, in memory order.
    """
    channels, height, width, side = sizes[CHANNELS], sizes[HEIGHT], sizes[WIDTH], sizes[SIDE]
    pixels, rectified = carray(hidden, (channels, height, width)), sizes[RECTIFIED]
    if side == 0:
        return pixels.copy().reshape(channels * height * width)
    features, line = np.empty((channels, side, side), np.float32), np.empty(width, np.float32)
    lefts, rights = np.empty(side, np.int64), np.empty(side, np.int64)
    for j in range(side):
        lefts[j], rights[j] = j * width // side, ((j + 1) * width + side - 1) // side
    for c in range(channels):
        for i in range(side):
            top, bottom = i * height // side, ((i + 1) * height + side - 1) // side
            line[:] = 0
            for y in range(top, bottom):
                for x in range(width):
                    line[x] += _positive(pixels[c, y, x]) if rectified else pixels[c, y, x]
            for j in range(side):
                total = np.float32(0)
                for x in range(lefts[j], rights[j]):
                    total += line[x]
                features[c, i, j] = total / np.float32((bottom - top) * (rights[j] - lefts[j]))
    return features.reshape(channels * side * side)


@njit(fastmath=ROUNDED_ANYHOW, error_model="numpy")
def _linear(given, weight, bias_at, factor):  # type: ignore[no-untyped-def]
    rows, columns = weight.shape
    bias, made = carray(bias_at, rows), np.empty(rows, np.float32)
    for i in range(rows):
        total = np.float32(0)
        for j in range(columns):
            total += weight[i, j] * given[j]
        made[i] = total * factor + bias[i]
    return made


@called_by_address(types.float32(FLOATS, FLOATS, INTEGERS, types.float32, *(FLOATS,) * 8), fastmath=ROUNDED_ANYHOW)
def look_up(  # type: ignore[no-untyped-def]
    hidden, found, sizes_at, factor, weight, bias, last_weight, last_bias, inner, inner_bias, outer, outer_bias
):
    """Return the selector's logit for a row; write class probabilities to `found` (classes,).

        hidden --pool--> features --linear, ReLU--> --linear--> logits --softmax--> found
        found --highest--> selector

    The first linear layer multiplies its sums by `factor` before it adds its bias. Logits that are
    NaN or positive infinity make the result NaN.
    """
    sizes = carray(sizes_at, SIZES)
    width, classes, judges, top = sizes[HIDDEN], sizes[CLASSES], sizes[SELECTOR], sizes[TOP]
    features = _features(hidden, sizes)
    if width:
        features = _linear(features, carray(weight, (width, len(features))), bias, factor)
        for i in range(width):
            features[i] = _positive(features[i])
        factor = np.float32(1)
    logits = _linear(features, carray(last_weight, (classes, len(features))), last_bias, factor)
    probabilities = carray(found, classes)
    highest, total = logits.max(), np.float32(0)
    for i in range(classes):
        probabilities[i] = np.exp(logits[i] - highest)
        total += probabilities[i]
    for i in range(classes):
        probabilities[i] /= total
        logits[i] = probabilities[i]
    seen = np.empty(top, np.float32)
    for k in range(top):
        best = logits.argmax()
        seen[k] = logits[best]
        logits[best] = -1
    judged = _linear(seen, carray(inner, (judges, top)), inner_bias, np.float32(1))
    sure = carray(outer_bias, 1)[0]
    for i in range(judges):
        sure += carray(outer, judges)[i] * _positive(judged[i])
    return sure
