"""Memory: peaks, what is alive, growth, churn, fragmentation."""
