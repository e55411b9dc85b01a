"""Operator calls: tables, arithmetic, shapes."""
