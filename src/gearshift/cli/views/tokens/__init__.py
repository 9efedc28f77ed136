"""Tables and sentences of the verbs for language models."""
