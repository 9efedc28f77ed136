"""Small tools that know nothing of serving: files, processes, optional packages, compiled functions."""
