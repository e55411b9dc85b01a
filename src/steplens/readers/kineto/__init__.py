"""Kineto and Chrome traces."""
