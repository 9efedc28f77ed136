"""The planners of the papers: `coordinate` (CascadeServe) and `frontier` (Ken)."""
