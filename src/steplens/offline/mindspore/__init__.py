"""Results of MindSpore's recordings: of windows, of raw device logs, and of MindSpore's own records of the host."""
