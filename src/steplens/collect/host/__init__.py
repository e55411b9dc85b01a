"""Samples of the machine, taken by a process of their own."""
