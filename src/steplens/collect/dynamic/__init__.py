"""Captures of a running job: a configuration file starts them, every process agrees on the steps and says how it is."""
