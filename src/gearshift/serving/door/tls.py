"""The TLS context of a server, from its certificate and key."""

import ssl

from gearshift.errors import InvalidInput

PEM = "name PEM files of a certificate chain and of its key, the key without a password"


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Load certificate and key; raises `InvalidInput` if unreadable or not a pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    where = f"{certificate} and {key}"
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM").replace("_", " ").lower()
        raise InvalidInput(f"certificate and key cannot be used ({reason})", where=where, remedy=PEM) from None
    except OSError as error:
        raise InvalidInput(f"a file cannot be read ({error.strerror})", where=where, remedy=PEM) from None
    return context


def _no_password() -> str:
    """Return no password; otherwise OpenSSL would ask at the terminal."""
    return ""
