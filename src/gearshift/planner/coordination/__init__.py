"""The four submodules of CascadeServe's Algorithm 1, and their shared state."""
