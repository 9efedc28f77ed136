"""A certificate and its key, to serve with."""

import ssl

from gearshift.errors import InvalidInput

PEM = "name PEM files of a certificate chain and of its key, the key without a password"


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """What a server needs to speak TLS; raises `InvalidInput` unless both files can be read and belong together."""
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
    """OpenSSL would ask at the terminal otherwise."""
    return ""
