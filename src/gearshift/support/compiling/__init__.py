"""How Numba compiles for us, and where it keeps what it has compiled."""
