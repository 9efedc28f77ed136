"""Models as registries keep them: of MLflow, and of Hugging Face."""
