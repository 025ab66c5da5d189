"""Comparison of printed output with documentation: exact text, long numbers up to their last written digit."""

from __future__ import annotations

import re

MIN_ROUNDED_DIGITS = 6  # numbers with fewer digits must agree exactly
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")


def same_output(expected: str, shown: str) -> bool:
    """Whether two texts agree; long numbers may differ by one unit in the last written digit."""
    if NUMBER.split(expected) != NUMBER.split(shown):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(shown), strict=True)
    return all(same_printed_number(a, b) for a, b in pairs)


def same_printed_number(expected: str, shown: str) -> bool:
    """Whether two printed numbers agree up to rounding."""
    # Elementary functions differ in their last digits between processors; short numbers hide that.
    if expected == shown:
        return True
    digits, _, exponent = expected.partition("e")
    if "." not in digits or "." not in shown or len(digits.lstrip("-0.").replace(".", "")) < MIN_ROUNDED_DIGITS:
        return False
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(expected) - float(shown)) <= 1.001 * unit
