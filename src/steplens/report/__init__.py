"""A report: the pages of ``steplens view`` and the answers that they need in one file, which opens without steplens."""
