"""The offline search for a gear plan."""
