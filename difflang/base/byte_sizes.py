"""Amounts of memory as people write and read them: `256 MiB`."""

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
MAX_BYTES = 2**62


def format_bytes(bytes: int, *, up: bool = False) -> str:
    """So many bytes in a fitting unit, three digits long: `1.5 MiB`; `up`, never less than they are, and as programs
    write it.

    >>> human(1536), human(1537, up=True)
    ('1.5 KiB', '1.51 KiB')
    """
    unit = min(len(BINARY_UNITS) - 1, max(0, (bytes.bit_length() - 1) // 10))
    number = bytes / 1024**unit
    digits = 0 if number >= 100 else 1 if number >= 10 else 2
    if up:
        number = ceil(number * 10**digits) / 10**digits
    text = f"{number:.{digits}f}" if up else f"{number:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {BINARY_UNITS[unit]}"


def tightest_limit(*limits: int) -> int:
    """The least of some limits on memory, where 0 is none."""
    return min([n for n in limits if n], default=0)


def to_bytes(number: float, unit: str) -> int | None:
    """So many of a unit in bytes; None for less than one byte, and for more than any machine has."""
    found = number * UNITS[unit]
    return int(found) if 1 <= found < MAX_BYTES else None


def parse_bytes(text: str) -> int | None:
    """The bytes of `256 MiB` or of `256MiB`; None for what is none, such as a number without a unit."""
    text = text.strip()
    number = text.rstrip(ascii_letters)
    try:
        return to_bytes(float(number.replace("_", "")), text[len(number) :])
    except (KeyError, ValueError):
        return None


def suggest_byte_sizes(text: str) -> str:
    """The amounts that a text will have meant which is none: `2mib` is `2MiB`. If nothing else, an example of one."""
    number = text.strip().rstrip(ascii_letters)
    letters = text.strip()[len(number) :].lower()
    units = {**{u[:n].lower(): u for u in BINARY_UNITS[1:] for n in (1, 2)}, **{u.lower(): u for u in UNITS}}
    units |= {"byte": "B", "bytes": "B"}
    found = [f"{number.strip()}{unit}" for unit in ([units.get(letters, "")] if letters else ("B", "MiB"))]
    return " or ".join(filter(parse_bytes, found)) or "64MiB"
