"""Sizes in bytes as people write and read them: format and parse `256 MiB`."""

from __future__ import annotations

from math import ceil
from string import ascii_letters

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
UNITS = {
    **{unit: 1024**i for i, unit in enumerate(BINARY_UNITS)},
    **{unit: 1000**i for i, unit in enumerate(DECIMAL_UNITS)},
    "KB": 1000,
}
# More than any machine has, and still a signed 64-bit integer.
MAX_BYTES = 2**62


def format_bytes(bytes: int, *, up: bool = False) -> str:
    """Format a byte count with three digits and a fitting unit: `1.5 MiB`. With `up`, round up and write no commas.

    >>> format_bytes(1536), format_bytes(1537, up=True)
    ('1.5 KiB', '1.51 KiB')
    """
    unit = min(len(BINARY_UNITS) - 1, max(0, (bytes.bit_length() - 1) // 10))
    number = bytes / 1024**unit
    # Three significant digits: 1.50, 15.0, 150.
    digits = 0 if number >= 100 else 1 if number >= 10 else 2
    if up:
        number = ceil(number * 10**digits) / 10**digits
    text = f"{number:.{digits}f}" if up else f"{number:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {BINARY_UNITS[unit]}"


def tightest_limit(*limits: int) -> int:
    """The smallest of some memory limits, where 0 means no limit."""
    return min([n for n in limits if n], default=0)


def to_bytes(number: float, unit: str) -> int | None:
    """An amount of a unit in bytes; None below one byte and above what any machine has."""
    found = number * UNITS[unit]
    return int(found) if 1 <= found < MAX_BYTES else None


def parse_bytes(text: str) -> int | None:
    """Parse `256 MiB` or `256MiB` into bytes; None for anything else, such as a number without a unit."""
    text = text.strip()
    number = text.rstrip(ascii_letters)
    try:
        return to_bytes(float(number.replace("_", "")), text[len(number) :])
    except (KeyError, ValueError):
        return None


def suggest_byte_sizes(text: str) -> str:
    """Likely readings of an invalid size: `2MiB` for `2mib`. If there is none, an example."""
    number = text.strip().rstrip(ascii_letters)
    letters = text.strip()[len(number) :].lower()
    units = {**{u[:n].lower(): u for u in BINARY_UNITS[1:] for n in (1, 2)}, **{u.lower(): u for u in UNITS}}
    units |= {"byte": "B", "bytes": "B"}
    found = [f"{number.strip()}{unit}" for unit in ([units.get(letters, "")] if letters else ("B", "MiB"))]
    return " or ".join(filter(parse_bytes, found)) or "64MiB"
