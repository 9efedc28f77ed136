"""Errors of this process's own code: they end one request or one look, and the rest goes on."""

import logging

log = logging.getLogger(__name__)


class OwnErrors:
    """Logs each kind of error once."""

    def __init__(self) -> None:
        self._logged = set[str]()

    def log(self, where: str, error: Exception) -> None:
        kind = f"{where}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("fault %s; the like is not logged again", where, exc_info=error)
