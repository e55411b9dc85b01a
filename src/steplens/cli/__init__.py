"""The command line: one module per sub-command, all of them listed in ``steplens.cli.main``."""
