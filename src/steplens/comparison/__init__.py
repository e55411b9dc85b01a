"""Runs compared with runs: what became slower, by how much, how sure that is, and where the time went."""
