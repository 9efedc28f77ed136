"""The Open Inference Protocol, version 2: bodies, JSON, binary tensors, gRPC messages. Server and clients use it alike."""
