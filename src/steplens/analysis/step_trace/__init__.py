"""The step trace, as MindSpore defines it: interval, forward and backward, tail, and its figure."""
