"""Result files of MindSpore's profiler."""
