"""The file of an artifact: a ZIP archive of stored members, of which each byte is determined by what they hold.

So any tool opens it, and a byte that was changed anywhere is seen: who reads packs again and compares.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from difflang.base.byte_sizes import human
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source_files import unreadable

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # for which StableHLO can be in it
MOST_BYTES = 2**31 - 1  # of a file: beyond it ZIP needs fields of another form
MOST_MEMBERS = 10_000
DAY = 0x21  # 1 January 1980, the first day that ZIP knows

# Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
UTF8 = 0x800

UNREADABLE = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)  # what `zipfile` may raise


def damaged(what: str) -> NoReturn:
    message = f"this is no artifact of difflang, or it is damaged: {what}"
    raise DifflangError(Diagnostic("DL1241", message, helps=("export it again, or copy it again",)))


def packed(members: Mapping[str, bytes]) -> bytes:
    """The bytes of a file with these members, in this order. Errors: DL1240 where it would be too large."""
    whole = sum(len(name) * 2 + len(data) + 100 for name, data in members.items())
    if whole > MOST_BYTES:
        message = f"an artifact holds at most {human(MOST_BYTES)}, and this would take {human(whole)}"
        raise DifflangError(Diagnostic("DL1240", message, helps=("pass large arrays as arguments",)))
    parts: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name, data in members.items():
        title, sum32, size = name.encode(), zlib.crc32(data), len(data)
        common = (20, UTF8, 0, 0, DAY, sum32, size, size, len(title), 0)
        parts += [LOCAL.pack(b"PK\3\4", *common), title, data]
        directory += [CENTRAL.pack(b"PK\1\2", 20, *common, 0, 0, 0, 0, offset), title]
        offset += LOCAL.size + len(title) + size
    size = sum(map(len, directory))
    count = len(members)
    return b"".join([*parts, *directory, END.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)])


def unpacked(data: bytes) -> dict[str, bytes]:
    """The members of a file. Errors: DL1241 where they cannot be read; see `refuse_changed`."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS or sum([m.file_size for m in members]) > len(data):
                damaged("it says that it holds more than there is")
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED:
                    damaged("a member is compressed")
                if member.filename in found:
                    damaged("two members have one name")
                found[member.filename] = archive.read(member)
    except UNREADABLE as error:
        damaged(str(error).splitlines()[0] if str(error) else "it is no ZIP archive")
    return found


def refuse_changed(data: bytes, members: Mapping[str, bytes]) -> None:
    """Errors: DL1241 where a file of these members has other bytes."""
    if packed(members) != data:
        damaged("there are bytes in it that do not belong to it")


def read(path: Path) -> bytes:
    """The bytes of a file. Errors: DL0701 where it cannot be read, DL1241 for one that is too large or has no end."""
    try:
        if path.is_dir():
            raise unreadable(str(path), "this is a directory", "name a file in it")
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            damaged("it is no regular file")
        if about.st_size > MOST_BYTES:
            damaged(f"it takes more than {human(MOST_BYTES)}")
        return path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), (error.strerror or "it cannot be read").lower()) from None
    except ValueError as error:  # a name with a zero in it
        raise unreadable(repr(str(path)), str(error)) from None
