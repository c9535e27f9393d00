"""How a value of LangGraph becomes the JSON of an item, and back. What its serde
makes of it, bytes, travels as base64; much of it as pieces, which are items of
their own under the digest of their content."""

from __future__ import annotations

import base64
from typing import Any, Callable

from .client import CounterfoilError, Item, Operation
from .names import digest, piece_key

PIECE_BYTES = 512 * 1024  # in base64 a third longer: still below the API's 1 MiB
VALUE_BYTES_MAX = 64 * 1024 * 1024

# A value as it is stored: {"type", "base64"}, or {"type", "pieces"} with the
# digests of its pieces in order.
Packed = dict[str, Any]


def pack(kind: str, data: bytes) -> tuple[Packed, list[Operation]]:
    """Returns a value's stored form, and the operations that write its pieces.
    They go first. One that is there already is written again as it was."""
    if len(data) > VALUE_BYTES_MAX:
        raise ValueError(
            f"a value of {len(data)} bytes is more than the {VALUE_BYTES_MAX} that a checkpoint may hold: "
            "keep it elsewhere, and its address in the state"
        )
    if len(data) <= PIECE_BYTES:
        return {"type": kind, "base64": _base64(data)}, []
    parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    pieces = {digest(part): part for part in parts}
    operations: list[Operation] = [
        {"op": "put", "key": piece_key(name), "value": {"base64": _base64(part)}} for name, part in pieces.items()
    ]
    return {"type": kind, "pieces": [digest(part) for part in parts]}, operations


def unpack(packed: Packed, get: Callable[[str], Item | None]) -> tuple[str, bytes]:
    if "base64" in packed:
        return packed["type"], base64.b64decode(packed["base64"])
    return packed["type"], b"".join(_piece(name, get) for name in packed["pieces"])


def _piece(name: str, get: Callable[[str], Item | None]) -> bytes:
    item = get(piece_key(name))
    data = base64.b64decode(item["value"]["base64"]) if item else b""
    if digest(data) != name:
        raise CounterfoilError(
            "incomplete",
            f"a piece of a value, {piece_key(name)}, is missing or not what was written: was the thread deleted meanwhile?",
        )
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
