"""The Open Inference Protocol, version 2, as server and clients use it: bodies, JSON, binary tensors, gRPC messages."""
