"""Figures over many versions of a program."""
