"""Messages between processes of the dataflow machine: a length, a header in JSON, and the bytes of arrays.

Nothing that is received is run: no pickle, and a graph names ops that both sides have. Before anything else both sides
prove, by HMAC over fresh numbers, that they know the token of the run. Errors here are WireError.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import Any

import ml_dtypes  # noqa: F401  # pyright: ignore  teaches NumPy the name bfloat16
import numpy as np

from difflang.ops.loop.reversible_loop import UnrestoredHistory

MAX_HEADER_BYTES = 256 << 20  # graphs are in headers
MAX_BODY_BYTES = 4 << 30
MAX_HANDSHAKE_BYTES = 4096  # whoever has not proved the token yet may not send more
SEND_SECONDS = 10
MAX_NESTING = 64  # of histories in histories
NONCE_BYTES = 32
PREFIX = struct.Struct("<4sQQ")
MAGIC = b"DFL1"

Message = dict[str, Any]


class WireError(Exception):
    """The other side is gone, or what it sent is no message of this protocol."""


class TokenError(WireError):
    """The other side does not know the token of this run."""


class Connection:
    """A socket that carries messages. One thread reads; sends are whole messages, so several threads may send."""

    def __init__(self, sock: socket.socket) -> None:
        import threading

        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that reads nothing any more must not stop this side for ever.
        limit = struct.pack("ll", SEND_SECONDS, 0) if os.name == "posix" else SEND_SECONDS * 1000
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.sock, self.lock = sock, threading.Lock()
        self.heard = monotonic()  # when bytes came last

    def send(self, message: Message, value: Any = None) -> None:
        """A message, and a value: an array, a history, or the empty tuple of an effect. Errors: WireError."""
        buffers: list[bytes] = []
        text = json.dumps({**message, "value": encode_value(value, buffers)}, separators=(",", ":"))
        # It ends as a line, so that a server of another protocol answers at once instead of waiting for the end.
        head = f"{text}\n".encode()
        body = b"".join(buffers)
        try:
            with self.lock:
                self.sock.sendall(PREFIX.pack(MAGIC, len(head), len(body)) + head)
                self.sock.sendall(body)
        except BlockingIOError:
            raise WireError(f"it took nothing for {SEND_SECONDS} seconds") from None
        except OSError as error:
            raise WireError(error_reason(error)) from None

    def receive(self, *, handshake: float | None = None) -> tuple[Message, Any]:
        """The next message and its value; in a handshake a small one, before that time. Errors: WireError."""
        magic, header, body = PREFIX.unpack(self.read(PREFIX.size, handshake))
        if magic != MAGIC:
            raise WireError("it does not speak this protocol")
        most = (MAX_HEADER_BYTES, MAX_BODY_BYTES) if handshake is None else (MAX_HANDSHAKE_BYTES, 0)
        if header > most[0] or body > most[1]:
            raise WireError(f"its message of {header + body:,} bytes is too large")
        head, rest = self.read(header, handshake), self.read(body, handshake)
        try:
            message = json.loads(head)
            value = decode_value(message.pop("value"), memoryview(rest), [0], 0)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise WireError(f"its message cannot be read: {error}") from None
        return message, value

    def read(self, size: int, before: float | None = None) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                if before is not None:
                    self.sock.settimeout(max(before - monotonic(), 1e-3))
                part = self.sock.recv(min(size - len(found), 1 << 20))
            except TimeoutError:
                raise WireError("it did not answer in time") from None
            except OSError as error:
                raise WireError(error_reason(error)) from None
            if not part:
                raise WireError("it closed the connection")
            found += part
            self.heard = monotonic()
        return bytes(found)

    def close(self) -> None:
        with suppress(OSError):  # wakes the thread that reads
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def error_reason(error: OSError) -> str:
    """What a system says of a connection that failed, without its number."""
    return error.strerror or str(error)


# ---- Values


def encode_value(value: Any, buffers: list[bytes]) -> Any:
    """A description of a value as JSON; the bytes of its arrays go to `buffers`, in order."""
    if value is None or isinstance(value, tuple):
        # A stack stays on the device of its loop.
        assert not value
        return None if value is None else []
    if isinstance(value, list):
        marks = {"reverse": value.from_last} if isinstance(value, UnrestoredHistory) else {}
        return {"items": [encode_value(x, buffers) for x in value], **marks}
    array = np.asarray(value)
    buffers.append(array.tobytes())
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def decode_value(described: Any, body: memoryview, at: list[int], depth: int) -> Any:
    """The value; `at` holds the position in the body. Errors: ValueError, KeyError, TypeError for what is none."""
    if described is None or described == []:
        return described if described is None else ()
    if depth > MAX_NESTING:
        raise ValueError("nested too deep")
    if "items" in described:
        items = [decode_value(x, body, at, depth + 1) for x in described["items"]]
        return UnrestoredHistory(items, reverse=bool(described["reverse"])) if "reverse" in described else items
    dtype, shape = np.dtype(described["dtype"]), tuple(map(int, described["shape"]))
    if dtype.hasobject or any(n < 0 for n in shape):
        raise ValueError("no array of numbers")
    count = 1
    for n in shape:
        count *= n
    end = at[0] + count * dtype.itemsize
    if end > len(body):
        raise ValueError("an array is cut off")
    found = np.frombuffer(body[at[0] : end], dtype).reshape(shape).copy()
    at[0] = end
    return found


# ---- Handshake


def prove_token(connection: Connection, token: str, *, first: bool, seconds: float = 10.0) -> None:
    """Both sides prove that they know the token, without sending it, and in time.

    Errors: WireError if the other side does not.
    """
    before = monotonic() + seconds
    mine, key = secrets.token_hex(NONCE_BYTES), token.encode()
    if first:
        connection.send({"nonce": mine})
    theirs = text_of(connection.receive(handshake=before)[0], "nonce")
    if not first:
        connection.send({"nonce": mine})
    sides = ("first", "second") if first else ("second", "first")
    connection.send({"proof": proof(key, sides[0], mine, theirs)})
    wanted = proof(key, sides[1], theirs, mine)
    found = text_of(connection.receive(handshake=before)[0], "proof")
    # Bytes, since texts that are not ASCII are not compared.
    if not hmac.compare_digest(found.encode(errors="replace"), wanted.encode()):
        raise TokenError("it does not know the token of this run")
    connection.sock.settimeout(None)


def proof(key: bytes, side: str, own: str, other: str) -> str:
    return hmac.new(key, f"{side} {own} {other}".encode(), "sha256").hexdigest()


def text_of(message: Message, name: str) -> str:
    found = message.get(name)
    if not isinstance(found, str):
        raise WireError(f"its message has no {name}")
    return found
