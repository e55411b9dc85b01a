"""The rules, by subject: a module defines the rules of one, each with its thresholds as arguments."""
