"""A certificate of 127.0.0.1 that is good for tests alone, as everybody has its key, and keys that do not fit it."""

from pathlib import Path

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBjzCCATagAwIBAgIUFlQaDXXnjvFfmBDKQpMYWhdegpowCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyMTE2MjAzOVoYDzIxMjYxMDI4
MTYyMDM5WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAS4spGHj2wQ1/hy56fLBLdDjg9v5qpqh3j63LS8U9ixmKzitoTMJN77
fFO7gzJsg9ZcQ3v3mk79rl05xYJ0ihXbo2QwYjAdBgNVHQ4EFgQUZnb3A9T9IpEL
ynwN0CUfiaD+5WMwHwYDVR0jBBgwFoAUZnb3A9T9IpELynwN0CUfiaD+5WMwDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0cAMEQC
IG926Ugr6w2ys/psDmWg2lvfUxD/129Th/MrCWy52YH6AiBhDQjzksEi5l+tfsFQ
/vcsvraVf/wK2TPZ7Z5yJX5W0A==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxvwUvXyGlOrBAE6E
1p9d9JjhEgkJRgXN6xdHwP21NTmhRANCAAS4spGHj2wQ1/hy56fLBLdDjg9v5qpq
h3j63LS8U9ixmKzitoTMJN77fFO7gzJsg9ZcQ3v3mk79rl05xYJ0ihXb
-----END PRIVATE KEY-----
"""
ANOTHER_KEY = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIAyFzpE4wdLfpyKZC8MavCgca2qGUnCnb9FoDy9woRcIoAoGCCqGSM49
AwEHoUQDQgAEELHmdlYtG75gtuwcs3XzEH59N746f2ZfQQQWsvUVWZHqm81xfu9u
F41J0qMWscsBfohhuFHHbmQ0PZrdyCO8XA==
-----END EC PRIVATE KEY-----
"""
KEY_WITH_PASSWORD = """\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,DD8D404CDB66AD47761F4D05E1264F69

thrL6yjtkB7Cx/KehrLj7AzpQH7TpTj3gdbBj8NgYj7jUJ5Tpfq5ltI6i+GRZx1Y
Ds9MFnqxMx7Vi06vR82eG+tRIIDIh+uNuIK6OnZT+I/EIve87TN3SvsqusAqdItu
UWWfqLeSO4syrDUomQJKjiUTj2INDQKA8B68BE8EUWk=
-----END EC PRIVATE KEY-----
"""


def write_certificate(folder: Path, key: str = KEY) -> dict[str, str]:
    """Write the files; the settings that name them."""
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_text(CERTIFICATE)
    key_path.write_text(key)
    return {"tls_certificate": str(certificate_path), "tls_key": str(key_path)}
