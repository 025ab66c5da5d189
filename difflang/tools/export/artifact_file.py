"""The container of an artifact: an uncompressed ZIP archive whose bytes are determined by its members.

Any tool can open it, and a change of any byte is detected: a reader packs the members again and compares.
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

from difflang.base.byte_sizes import format_bytes
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source_files import read_error

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # the platforms of StableHLO members
MAX_BYTES = 2**31 - 1  # a larger file would need ZIP64 fields
MAX_MEMBERS = 10_000
# 1 January 1980, the first date of ZIP: a real one would change the bytes.
ZIP_EPOCH = 0x21

# Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
CENTRAL_HEADER = struct.Struct("<4s6H3I5H2I")
END_RECORD = struct.Struct("<4s4H2IH")
UTF8_FLAG = 0x800

# What `zipfile` may raise.
ZIP_FAULTS = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)


def raise_damaged(what: str) -> NoReturn:
    message = f"this is not a difflang artifact, or it is damaged: {what}"
    raise DifflangError(Diagnostic("DL1241", message, helps=("export it again, or copy it again",)))


def pack(members: Mapping[str, bytes]) -> bytes:
    """The bytes of a file with these members, in this order. Errors: DL1240 if it would be too large."""
    whole = sum(len(name) * 2 + len(data) + 100 for name, data in members.items())
    if whole > MAX_BYTES:
        message = f"an artifact holds at most {format_bytes(MAX_BYTES)}, but this would take {format_bytes(whole)}"
        raise DifflangError(Diagnostic("DL1240", message, helps=("pass large arrays as arguments",)))
    parts: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name, data in members.items():
        title, sum32, size = name.encode(), zlib.crc32(data), len(data)
        common = (20, UTF8_FLAG, 0, 0, ZIP_EPOCH, sum32, size, size, len(title), 0)
        parts += [LOCAL_HEADER.pack(b"PK\3\4", *common), title, data]
        directory += [CENTRAL_HEADER.pack(b"PK\1\2", 20, *common, 0, 0, 0, 0, offset), title]
        offset += LOCAL_HEADER.size + len(title) + size
    size = sum(map(len, directory))
    count = len(members)
    return b"".join([*parts, *directory, END_RECORD.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)])


def unpack(data: bytes) -> dict[str, bytes]:
    """The members of a file. Errors: DL1241 if they cannot be read; see `verify_bytes`."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            # A ZIP bomb claims more than the file holds; members are stored uncompressed.
            if len(members) > MAX_MEMBERS or sum([m.file_size for m in members]) > len(data):
                raise_damaged("it declares more content than it has")
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED:
                    raise_damaged("a member is compressed")
                if member.filename in found:
                    raise_damaged("two members have the same name")
                found[member.filename] = archive.read(member)
    except ZIP_FAULTS as error:
        raise_damaged(str(error).splitlines()[0] if str(error) else "it is not a ZIP archive")
    return found


def verify_bytes(data: bytes, members: Mapping[str, bytes]) -> None:
    """Errors: DL1241 if a file with these members would have other bytes."""
    if pack(members) != data:
        raise_damaged("it contains bytes that do not belong to it")


def read_container(path: Path) -> bytes:
    """The bytes of a file. Errors: DL0701 if it cannot be read, DL1241 if it is too large or endless."""
    try:
        if path.is_dir():
            raise read_error(str(path), "this is a directory", "name a file in it")
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise_damaged("it is not a regular file")
        if about.st_size > MAX_BYTES:
            raise_damaged(f"it is larger than {format_bytes(MAX_BYTES)}")
        return path.read_bytes()
    except OSError as error:
        raise read_error(str(path), (error.strerror or "it cannot be read").lower()) from None
    except ValueError as error:  # a NUL character in the name
        raise read_error(repr(str(path)), str(error)) from None
