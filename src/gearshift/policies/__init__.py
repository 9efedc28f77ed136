"""Every online decision, each a pure function of numbers, used by runtime and simulator alike.

Leaf functions: they call nothing, so that the simulator can compile them one by one; but for `look_ahead`, `demand`
and `scaling.share_cores`, which are asked once a period and never compiled.  State and `now_ns` come in,
a decision goes out; there is no clock, no input or output, and no randomness of their own.
"""
