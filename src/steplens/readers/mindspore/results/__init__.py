"""Results of MindSpore's profiler, and its PROF directories."""
