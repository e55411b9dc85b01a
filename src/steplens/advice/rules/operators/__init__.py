"""Operators of the device: products, attention, sequences that could be fused, shapes and axes that suit it badly."""
