"""Flame graphs and profiles: stacks, speedscope, pprof."""
