"""Comprehensions: maps become operations on whole arrays."""
