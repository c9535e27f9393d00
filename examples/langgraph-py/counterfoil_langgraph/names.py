"""How threads, namespaces, checkpoints, channels and tasks become the names of
stores and items, which have 1 to 128 characters. The saver for LangGraph.js
makes the same names."""

from __future__ import annotations

import base64
import hashlib
import re

_PART_MAX = 36  # characters: a UUID fits. The longest key has 3 parts, 2 + 3*37 + an index.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")

MARKER_PREFIX = "m:"


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _part(text: str, longest: int = _PART_MAX) -> str:
    """Text where that is short and plain, and else a digest of it. The two
    cannot meet: only digests begin with a tilde."""
    if not text or (len(text) <= longest and _PLAIN.fullmatch(text)):
        return text
    return "~" + digest(text.encode("utf-16-le", "surrogatepass"))[:32]


def _version(version: str | int | float) -> str:
    whole = isinstance(version, float) and version.is_integer()
    return str(int(version) if whole else version)


def store_name(prefix: str, thread: str) -> str:
    return f"{prefix}/{_part(thread, 127 - len(prefix))}"


def thread_key(thread: str) -> str:
    return f"t:{_part(thread, 100)}"


def marker_key(ns: str) -> str:
    return f"{MARKER_PREFIX}{_part(ns)}"


def checkpoint_prefix(ns: str | None) -> str:
    """Without a namespace: of all."""
    return "c:" if ns is None else f"c:{_part(ns)}:"


def checkpoint_key(ns: str, checkpoint: str) -> str:
    return checkpoint_prefix(ns) + _part(checkpoint)


def channel_key(ns: str, channel: str, version: str | int | float) -> str:
    return f"v:{_part(ns)}:{_part(channel)}:{_part(_version(version))}"


def writes_prefix(ns: str, checkpoint: str) -> str:
    return f"w:{_part(ns)}:{_part(checkpoint)}:"


def write_key(ns: str, checkpoint: str, task: str, index: int) -> str:
    return f"{writes_prefix(ns, checkpoint)}{_part(task)}:{index}"


def piece_key(name: str) -> str:
    return f"p:{name}"
