"""Every online decision, each a pure function of numbers, used by runtime and simulator alike.

Functions call no others, so that the simulator can compile them one by one; except `look_ahead`,
`demand` and `scaling.share_cores`, which run once a period and are never compiled. State and
`now_ns` come in, a decision goes out; there is no clock, no input or output, and no randomness of
their own.
"""
