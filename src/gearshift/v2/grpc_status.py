"""The service of the Open Inference Protocol V2 over gRPC, and its status of an error."""

import grpc

SERVICE = "inference.GRPCInferenceService"
RETRY_PUSHBACK_MS = "grpc-retry-pushback-ms"
STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""gRPC status by HTTP status of an error; all others are INTERNAL."""
