"""Windows that steplens recorded of MindSpore."""
