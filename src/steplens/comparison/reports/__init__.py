"""Comparisons as files that other tools show: test reports, Markdown; and the sentences that these and the terminal share."""
