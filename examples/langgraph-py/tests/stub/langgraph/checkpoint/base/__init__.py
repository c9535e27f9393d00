"""A stand-in for langgraph.checkpoint.base, as far as the saver and its tests
use it, for places where the real one cannot be installed. It has the real one's
names, signatures and indices, and a serde of its own that knows JSON and bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V", int, float, str)

Checkpoint = dict[str, Any]
CheckpointMetadata = dict[str, Any]
ChannelVersions = dict[str, Any]
RunnableConfig = dict[str, Any]

WRITES_IDX_MAP = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}

_NO_METADATA = {"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map"}


class CheckpointTuple(NamedTuple):
    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: RunnableConfig | None = None
    pending_writes: list[tuple[str, str, Any]] | None = None


class _Serde:
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return ("bytes", obj) if isinstance(obj, bytes) else ("json", json.dumps(obj).encode())

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return data[1] if data[0] == "bytes" else json.loads(data[1])


class BaseCheckpointSaver(Generic[V]):
    serde: Any = _Serde()

    def __init__(self, *, serde: Any = None) -> None:
        self.serde = serde or self.serde

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        raise NotImplementedError

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        raise NotImplementedError

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        raise NotImplementedError

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        raise NotImplementedError

    def delete_thread(self, thread_id: str) -> None:
        raise NotImplementedError

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        raise NotImplementedError

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        raise NotImplementedError

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        raise NotImplementedError

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        raise NotImplementedError

    async def adelete_thread(self, thread_id: str) -> None:
        raise NotImplementedError

    def get_next_version(self, current: V | None, channel: None = None) -> V:
        raise NotImplementedError


def get_checkpoint_id(config: RunnableConfig) -> str | None:
    found: str | None = config["configurable"].get("checkpoint_id")
    return found


def get_checkpoint_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """What the caller names, and what the config has besides: plain values only."""
    found = dict(metadata)
    for more in (config.get("metadata") or {}, config["configurable"]):
        for name, value in more.items():
            plain = isinstance(value, (str, int, float)) and name not in _NO_METADATA and not name.startswith("__")
            if plain:
                found.setdefault(name, value)
    return found
