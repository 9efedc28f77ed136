"""The compiled simulation of language models: arrays, engines and the router, by integers."""
