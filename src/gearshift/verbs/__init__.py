"""The verbs of the command line as Python functions."""
