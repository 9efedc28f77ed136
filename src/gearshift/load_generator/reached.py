"""The target at a URL: HTTP, or gRPC for the schemes `grpc` and `grpcs`."""

from urllib.parse import urlsplit

from gearshift.load_generator.http_target import HttpTarget
from gearshift.load_generator.targets import Sending, Target
from gearshift.support.extras import load_extra


def target_at(url: str, operator: str, output: str, sending: Sending) -> Target:
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("grpc", "grpcs"):
        load_extra("grpc", extra="grpc", where=url)
        from gearshift.load_generator.grpc_target import GrpcTarget

        return GrpcTarget(url, operator, output, sending)
    return HttpTarget(url.rstrip("/"), operator, output, sending)
