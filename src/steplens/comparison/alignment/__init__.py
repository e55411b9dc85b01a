"""The same step of two versions, its calls matched by structure."""
