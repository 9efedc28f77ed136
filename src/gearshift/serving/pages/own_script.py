"""Pages that run their own script alone, and ask their own server alone."""

import base64
from hashlib import sha256

Headers = tuple[tuple[bytes, bytes], ...]


def with_script(page: bytes, script: str) -> tuple[bytes, Headers]:
    """The page with the script at its end, and the headers that let it run no other."""
    hashed = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = ((b"content-security-policy", policy.encode()), (b"x-content-type-options", b"nosniff"))
    return page.replace(b"</body>", b"<script>%b</script></body>" % script.encode()), headers
