"""The four submodules of CascadeServe's Algorithm 1, and what they share."""
