"""Runs of many ranks: their answers are kept as they go over the wire, so that a page of a thousand ranks is there at once."""
