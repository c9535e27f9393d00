"""The checkpoint saver."""

from __future__ import annotations

import asyncio
import json
import random
import re
from builtins import list as list_of  # in the class, list is a method
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from . import names
from .client import BATCH_OPERATIONS, Client, CounterfoilError, Item, Operation
from .values import Packed, pack, unpack

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

_FORMAT = 1
_BATCH_CHARS = 4 * 1024 * 1024  # of JSON in one batch, about
_ID_BYTES_MAX = 256  # the API's most for a tag
_CONTENDED_MAX = 8  # how often somebody else may be faster
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")


class CounterfoilSaver(BaseCheckpointSaver[float]):
    """Keeps LangGraph's checkpoints in the stores of a Counterfoil sidecar: a
    thread is a store, and only its user sees it.

    A checkpoint and the values it changed are created in one commit, and after
    it the namespace's marker is moved to it, by ETag: a process that dies
    between the two leaves a marker that still names a whole checkpoint.

    url is the sidecar's data listener, as in http://127.0.0.1:8100; user is whose
    threads these are. With run and fence every write is refused (fenced) once
    another holds that run's lease. prefix begins the stores' names; the store of
    that very name lists the threads. timeout is in seconds, for one attempt.

    Threads may share a saver. It raises CounterfoilError.
    """

    def __init__(
        self,
        url: str,
        user: str,
        *,
        token: str | None = None,
        run: str | None = None,
        fence: int | None = None,
        prefix: str = "langgraph",
        timeout: float = 30.0,
        attempts: int = 3,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if not _PREFIX.fullmatch(prefix):
            raise ValueError("prefix must be 1 to 64 of A-Z a-z 0-9 _ . - and not begin with a dot")
        self._prefix = prefix
        self._client = Client(url, user, token=token, run=run, fence=fence, timeout=timeout, attempts=attempts)

    def get_next_version(self, current: float | None, channel: None = None) -> float:
        """The next whole number, and a fraction by chance: two branches that go
        on from one checkpoint get versions of their own, so that neither reads
        what the other wrote."""
        return int(current or 0) + 1 + random.randrange(2**32) / 2**32

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns = _thread(config), _namespace(config) or ""
        store = names.store_name(self._prefix, thread)
        checkpoint_id = get_checkpoint_id(config)
        if not checkpoint_id:
            marker = self._client.get(store, names.marker_key(ns))
            if not marker:
                return None
            checkpoint_id = str(marker["value"]["checkpoint_id"])
        record = self._record(store, names.checkpoint_key(ns, checkpoint_id))
        return self._tuple(store, thread, record, self._load(store, record["metadata"])) if record else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Newest first, by checkpoint id. The keys of all checkpoints that may be
        meant are read before the first is yielded."""
        left = limit
        for thread, store, key in self._find(config, filter or {}, before):
            if left is not None and left <= 0:
                return
            record = self._record(store, key)
            if not record:
                continue  # deleted meanwhile
            metadata = self._load(store, record["metadata"])
            if any(metadata.get(name) != value for name, value in (filter or {}).items()):
                continue
            left = None if left is None else left - 1
            yield self._tuple(store, thread, record, metadata)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same checkpoint again changes nothing. Another one under the same
        id replaces it, as LangGraph's durability "exit" asks for."""
        thread, ns, checkpoint_id = _thread(config), _namespace(config) or "", _id("checkpoint id", checkpoint["id"])
        store = names.store_name(self._prefix, thread)
        parent = get_checkpoint_id(config)
        metadata = get_checkpoint_metadata(config, metadata)
        values = checkpoint["channel_values"]
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}

        pieces: list[Operation] = []
        creates: list[Operation] = []
        for channel, version in new_versions.items():
            if channel in values:
                value = {"channel": channel, "version": version, "value": self._dump(values[channel], pieces)}
                creates.append(_create(names.channel_key(ns, channel, version), value))
        record = {
            "format": _FORMAT,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
            **({"parent_id": parent} if parent and parent != checkpoint_id else {}),
            "channels": [channel for channel in values if channel in checkpoint["channel_versions"]],
            "checkpoint": self._dump(rest, pieces),
            "metadata": self._dump(metadata, pieces),
        }
        tags = {**_tags(metadata), "id": checkpoint_id}
        creates.append({**_create(names.checkpoint_key(ns, checkpoint_id), record), "tags": tags})
        self._write(store, pieces)
        self._write(store, creates, _reconcile)
        self._advance(store, thread, ns, checkpoint_id, parent)
        return _config(thread, ns, checkpoint_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """A task's write is kept as it was first written. Its errors, interrupts
        and resumptions are kept as they were last written."""
        thread, ns = _thread(config), _namespace(config) or ""
        checkpoint_id = _id("checkpoint_id", get_checkpoint_id(config))
        pieces: list[Operation] = []
        operations: dict[str, Operation] = {}
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            key = names.write_key(ns, checkpoint_id, _id("task_id", task_id), index)
            record = {
                "task_id": task_id,
                "task_path": task_path,
                "index": index,
                "channel": channel,
                "value": self._dump(value, pieces),
            }
            operations[key] = _create(key, record) if index >= 0 else {"op": "put", "key": key, "value": record}
        store = names.store_name(self._prefix, thread)
        self._write(store, pieces)
        self._write(store, list_of(operations.values()), lambda operation, item: None)

    def delete_thread(self, thread_id: str) -> None:
        """Markers go first, and the thread's entry in the list of threads last:
        after a crash in between, the thread is empty for a graph, and a second
        call finishes the work."""
        store = names.store_name(self._prefix, _id("thread_id", thread_id))
        keys = [item["key"] for item in self._client.list(store, "", values=False)]
        keys.sort(key=lambda key: not key.startswith(names.MARKER_PREFIX))
        for at in range(0, len(keys), BATCH_OPERATIONS):
            self._client.batch(store, [{"op": "delete", "key": key} for key in keys[at : at + BATCH_OPERATIONS]])
        self._client.remove(self._prefix, names.thread_key(thread_id))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    def _find(
        self, config: RunnableConfig | None, filter: Mapping[str, Any], before: RunnableConfig | None
    ) -> Sequence[tuple[str, str, str]]:
        """Returns thread, store and key of the checkpoints that may be meant."""
        only = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        threads = [_thread(config)] if config and "thread_id" in config["configurable"] else self._threads()
        found = []
        for thread in threads:
            store = names.store_name(self._prefix, thread)
            prefix = names.checkpoint_prefix(_namespace(config) if config else None)
            for item in self._client.list(store, prefix, values=False, tags=_tags(filter)):
                checkpoint_id = item.get("tags", {}).get("id", "")
                if (not only or checkpoint_id == only) and (not end or checkpoint_id < end):
                    found.append((checkpoint_id, thread, store, item["key"]))
        found.sort(key=lambda one: one[0], reverse=True)
        return [one[1:] for one in found]

    def _threads(self) -> Iterator[str]:
        for item in self._client.list(self._prefix, names.thread_key(""), values=True):
            yield item["value"]["thread_id"]

    def _record(self, store: str, key: str) -> dict[str, Any] | None:
        item = self._client.get(store, key)
        if not item:
            return None
        record: dict[str, Any] = item["value"]
        if record["format"] != _FORMAT:
            raise CounterfoilError(
                "unknown-format",
                f"the checkpoint {key} in {store} has format {record['format']}, and this saver knows {_FORMAT}: use a newer one",
            )
        return record

    def _tuple(self, store: str, thread: str, record: dict[str, Any], metadata: CheckpointMetadata) -> CheckpointTuple:
        ns, checkpoint_id, parent = record["checkpoint_ns"], record["checkpoint_id"], record.get("parent_id")
        return CheckpointTuple(
            config=_config(thread, ns, checkpoint_id),
            checkpoint=self._checkpoint(store, record),
            metadata=metadata,
            parent_config=_config(thread, ns, parent) if parent else None,
            pending_writes=self._writes(store, ns, checkpoint_id),
        )

    def _checkpoint(self, store: str, record: dict[str, Any]) -> Checkpoint:
        checkpoint: Checkpoint = self._load(store, record["checkpoint"])
        values = {}
        for channel in record["channels"]:
            version = checkpoint["channel_versions"][channel]
            item = self._client.get(store, names.channel_key(record["checkpoint_ns"], channel, version))
            if item:
                values[channel] = self._load(store, item["value"]["value"])
        checkpoint["channel_values"] = values
        return checkpoint

    def _writes(self, store: str, ns: str, checkpoint_id: str) -> list_of[tuple[str, str, Any]]:
        prefix = names.writes_prefix(ns, checkpoint_id)
        records = [item["value"] for item in self._client.list(store, prefix, values=True)]
        records.sort(key=lambda write: (write["task_path"], write["task_id"], write["index"]))
        return [(write["task_id"], write["channel"], self._load(store, write["value"])) for write in records]

    def _advance(self, store: str, thread: str, ns: str, checkpoint_id: str, parent: str | None) -> None:
        """Moves the namespace's marker to a checkpoint that is written, unless it
        stands at a later one of another branch."""
        key = names.marker_key(ns)
        for _ in range(_CONTENDED_MAX):
            marker = self._client.get(store, key)
            at = marker["value"]["checkpoint_id"] if marker else ""
            if at == checkpoint_id or (at > checkpoint_id and at != parent):
                return
            if not marker:
                self._enlist(thread)
            try:
                condition = {"If-Match": marker["etag"]} if marker else {"If-None-Match": "*"}
                return self._client.put(store, key, {"checkpoint_ns": ns, "checkpoint_id": checkpoint_id}, condition)
            except CounterfoilError as error:
                # Somebody else moved it, or this is the repeat of what was done: look again.
                if error.problem not in ("etag-mismatch", "item-exists"):
                    raise
        raise _contended(f"the marker {key} in {store}")

    def _enlist(self, thread: str) -> None:
        """Enters a thread in the list of threads."""
        entry, create = {"thread_id": thread}, {"If-None-Match": "*"}
        try:
            self._client.put(self._prefix, names.thread_key(thread), entry, create)
        except CounterfoilError as error:
            if error.problem != "item-exists":
                raise

    def _write(
        self,
        store: str,
        operations: Sequence[Operation],
        on_existing: Callable[[Operation, Item], Operation | None] = lambda operation, _: operation,
    ) -> None:
        """Does operations, as many as go into one commit at a time. What is there
        already is put to on_existing, which returns the operation to do instead,
        or None for none."""
        for commit in _commits(operations):
            rounds = len(commit) + _CONTENDED_MAX
            while commit and (failed := self._commit(store, commit)) is not None:
                rounds -= 1
                if not rounds:
                    raise _contended(f"items in {store}")
                item = self._client.get(store, commit[failed]["key"])
                if item:  # else it was deleted meanwhile
                    instead = on_existing(commit[failed], item)
                    commit[failed : failed + 1] = [instead] if instead else []

    def _commit(self, store: str, operations: Sequence[Operation]) -> int | None:
        """Returns the index of the operation whose condition failed."""
        try:
            self._client.batch(store, operations)
            return None
        except CounterfoilError as error:
            if error.problem in ("item-exists", "etag-mismatch") and error.operation is not None:
                return error.operation
            raise

    def _dump(self, value: Any, pieces: list_of[Operation]) -> Packed:
        packed, more = pack(*self.serde.dumps_typed(value))
        pieces += more
        return packed

    def _load(self, store: str, packed: Packed) -> Any:
        return self.serde.loads_typed(unpack(packed, lambda key: self._client.get(store, key)))


def _reconcile(operation: Operation, item: Item) -> Operation | None:
    """Returns how what is there becomes what should be; None if it is that
    already. A checkpoint put on top of itself keeps its parent."""
    value = operation.get("value", {})
    if "checkpoint_id" not in value:
        if item["value"] == value:
            return None
        detail = f"a channel has another value under the same version ({item['key']}): versions must come from get_next_version"
        raise CounterfoilError("item-exists", detail, status=412)
    if "parent_id" in item["value"]:
        value = {"parent_id": item["value"]["parent_id"], **value}
    if item["value"] == value:
        return None
    tags = operation.get("tags", {})
    return {"op": "put", "key": operation["key"], "value": value, "tags": tags, "if_match": item["etag"]}


def _create(key: str, value: Any) -> Operation:
    return {"op": "put", "key": key, "value": value, "if_none_match": "*"}


def _commits(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Splits operations into batches that the API takes."""
    batch: list[Operation] = []
    chars = 0
    for operation in operations:
        size = len(json.dumps(operation))
        if batch and (len(batch) == BATCH_OPERATIONS or chars + size > _BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(operation)
        chars += size
    if batch:
        yield batch


def _tags(metadata: Mapping[str, Any]) -> dict[str, str]:
    """What of metadata, or of a filter on it, the store can look for."""
    source, step = metadata.get("source"), metadata.get("step")
    tags = {}
    if isinstance(source, str) and re.fullmatch("[a-z]{1,64}", source):
        tags["source"] = source
    if type(step) is int:
        tags["step"] = str(step)
    return tags


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _thread(config: RunnableConfig) -> str:
    return _id("thread_id", config["configurable"].get("thread_id"))


def _namespace(config: RunnableConfig) -> str | None:
    ns = config["configurable"].get("checkpoint_ns")
    if ns is not None and not isinstance(ns, str):
        raise TypeError(f"checkpoint_ns must be a string, not {type(ns).__name__}")
    return ns


def _id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f'{name} must be a string that is not empty, not {value!r}: pass {{"configurable": {{"thread_id": "…"}}}}')
    if name.startswith("checkpoint") and len(value.encode("utf-8", "surrogatepass")) > _ID_BYTES_MAX:
        raise ValueError(f"{name} must not be longer than {_ID_BYTES_MAX} bytes")
    return value


def _contended(what: str) -> CounterfoilError:
    detail = f"others were faster {_CONTENDED_MAX} times in a row at {what}: is the same thread run twice at once?"
    return CounterfoilError("contended", detail, status=409, safe_to_retry=True)
