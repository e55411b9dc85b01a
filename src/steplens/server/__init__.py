"""The web UI's server: JSON and binary answers about runs, on this machine only (docs/view.md)."""
