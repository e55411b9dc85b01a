"""What analyses share: intervals, groups, names, order, source lines."""
