"""Settings of the HTTP server."""

import msgspec

from gearshift.errors import require


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server listens, and its bounds.  Port 0 takes any free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    most_waiting_requests: int = 10_000
    most_waiting_bytes: int = 256 << 20
    largest_body_bytes: int = 64 << 20
    largest_header_bytes: int = 64 << 10
    keep_alive_s: int = 75
    drain_s: float = 30.0
    longest_start_s: float = 120.0

    def __post_init__(self) -> None:
        require(bool(self.host), "host is empty", remedy="give an address, such as 127.0.0.1")
        require(0 <= self.port <= 65535, f"port is {self.port}", remedy="give a number from 0 to 65535")
        for name in (
            "most_waiting_requests",
            "most_waiting_bytes",
            "largest_body_bytes",
            "largest_header_bytes",
            "keep_alive_s",
        ):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}, needs at least 1")
        require(0 <= self.drain_s <= 86_400, f"drain_s is {self.drain_s}, needs 0 to 86400")
        require(0 < self.longest_start_s <= 86_400, f"longest_start_s is {self.longest_start_s}, needs 0 to 86400")
