"""The command line, one verb per file."""
