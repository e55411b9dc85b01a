"""Traces as Kineto writes them."""
