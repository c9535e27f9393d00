import { randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  BaseCheckpointSaver, compareWritesSortKeys, copyCheckpoint, getCheckpointId, maxChannelVersion, TASKS, WRITES_IDX_MAP, writesSortKey,
} from '@langchain/langgraph-checkpoint';
import { batchOps, Client, CounterfoilError, isProblem, remember } from './client.mjs';
import { channelKey, checkpointKey, checkpointPrefix, markerKey, markerPrefix, storeName, threadKey, writeKey, writesPrefix } from './names.mjs';
import { mapBounded, pack, piecesOf, unpack } from './values.mjs';

/** @typedef {import('@langchain/core/runnables').RunnableConfig} RunnableConfig */
/** @typedef {import('@langchain/langgraph-checkpoint').ChannelVersions} ChannelVersions */
/** @typedef {import('@langchain/langgraph-checkpoint').Checkpoint} Checkpoint */
/** @typedef {import('@langchain/langgraph-checkpoint').CheckpointListOptions} CheckpointListOptions */
/** @typedef {import('@langchain/langgraph-checkpoint').CheckpointMetadata} CheckpointMetadata */
/** @typedef {import('@langchain/langgraph-checkpoint').CheckpointPendingWrite} CheckpointPendingWrite */
/** @typedef {import('@langchain/langgraph-checkpoint').CheckpointTuple} CheckpointTuple */
/** @typedef {import('@langchain/langgraph-checkpoint').PendingWrite} PendingWrite */
/** @typedef {import('@langchain/langgraph-checkpoint').SerializerProtocol} SerializerProtocol */
/** @typedef {import('./client.mjs').Item} Item */
/** @typedef {import('./client.mjs').Operation} Operation */
/** @typedef {import('./values.mjs').Packed} Packed */

/**
 * What a checkpoint's item holds. Its channels' values are items of their own,
 * one for each version of a channel, so that a step writes what it changed.
 * @typedef {object} CheckpointRecord
 * @property {1} format
 * @property {string} checkpoint_ns
 * @property {string} checkpoint_id
 * @property {string} [parent_id]
 * @property {string[]} channels those that had a value
 * @property {Packed} checkpoint all but the values
 * @property {Packed} metadata
 */
/**
 * @typedef {{ task_id: string, task_path: string, index: number, channel: string, value: Packed }} WriteRecord
 */
/** @typedef {{ id: string, etag: string }} Marker */

const format = 1;
const batchChars = 4 * 1024 * 1024; // of JSON in one batch, about
const idBytes = 256; // the API's most for a tag
const contendedMax = 8; // how often somebody else may be faster

/**
 * Keeps LangGraph's checkpoints in the stores of a Counterfoil sidecar: a thread
 * is a store, and only its user sees it.
 *
 * A checkpoint and the values it changed are created in one commit, and after
 * it the namespace's marker is moved to it, by ETag: a process that dies between
 * the two leaves a marker that still names a whole checkpoint.
 *
 * @extends {BaseCheckpointSaver<number>}
 */
export class CounterfoilSaver extends BaseCheckpointSaver {
  #client;
  #prefix;
  /** @type {Map<string, Marker>} what the markers were when this saver last saw them */
  #markers = new Map();

  /**
   * @param {import('./client.mjs').ClientOptions & { prefix?: string }} options `prefix` begins the stores' names: 1 to 64
   *   of `A-Z a-z 0-9 _ . -`, `langgraph` by default. The store of that very name lists the threads.
   * @param {SerializerProtocol} [serde] Instead of LangGraph's own.
   */
  constructor(options, serde) {
    super(serde);
    const { prefix = 'langgraph', ...rest } = options ?? {};
    if (!/^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/.test(prefix)) {
      throw new TypeError('prefix must be 1 to 64 of A-Z a-z 0-9 _ . - and not begin with a dot');
    }
    this.#prefix = prefix;
    this.#client = new Client(rest);
  }

  /**
   * The next version of a channel: the next whole number, and a fraction by
   * chance. Two branches that go on from one checkpoint get versions of their
   * own, so that neither reads what the other wrote.
   * @override
   * @param {number | undefined} current
   */
  getNextVersion(current) {
    return Math.floor(super.getNextVersion(current)) + randomInt(2 ** 32) / 2 ** 32;
  }

  /**
   * @override
   * @param {RunnableConfig} config
   * @returns {Promise<CheckpointTuple | undefined>}
   */
  async getTuple(config) {
    const { thread_id: thread, checkpoint_ns: ns = '' } = config.configurable ?? {};
    if (thread === undefined) return undefined;
    checkIds({ thread_id: thread, checkpoint_ns: ns });
    const store = storeName(this.#prefix, thread);
    const id = getCheckpointId(config) || (await this.#marker(store, ns))?.id;
    if (!id) return undefined;
    const record = await this.#record(store, checkpointKey(ns, id));
    return record && this.#tuple(store, thread, record, await this.#load(store, record.metadata));
  }

  /**
   * Newest first, by checkpoint id. The keys of all checkpoints that may be
   * meant are read before the first is yielded.
   * @override
   * @param {RunnableConfig} config
   * @param {CheckpointListOptions} [options]
   * @returns {AsyncGenerator<CheckpointTuple>}
   */
  async *list(config, { limit = Infinity, before, filter = {} } = {}) {
    const { thread_id: thread, checkpoint_ns: ns } = config.configurable ?? {};
    checkIds({ ...(thread !== undefined && { thread_id: thread }), ...(ns !== undefined && { checkpoint_ns: ns }) });
    const only = getCheckpointId(config);
    const end = before && getCheckpointId(before);
    const found = [];
    for await (const name of thread === undefined ? this.#threads() : [thread]) {
      const store = storeName(this.#prefix, name);
      for await (const { key, tags } of this.#client.list(store, checkpointPrefix(ns), { values: false, tags: tagsOf(filter) })) {
        const id = tags?.id ?? '';
        if ((!only || id === only) && (!end || id < end)) found.push({ thread: name, store, key, id });
      }
    }
    found.sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
    let left = limit;
    for (const { thread: name, store, key } of found) {
      if (left <= 0) return;
      const record = await this.#record(store, key);
      if (!record) continue; // deleted meanwhile
      const metadata = await this.#load(store, record.metadata);
      if (!Object.entries(filter).every(([member, value]) => isDeepStrictEqual(metadata[member], value))) continue;
      left--;
      yield this.#tuple(store, name, record, metadata);
    }
  }

  /**
   * The same checkpoint again changes nothing. Another one under the same id
   * replaces it, as LangGraph's durability "exit" asks for.
   * @override
   * @param {RunnableConfig} config
   * @param {Checkpoint} checkpoint
   * @param {CheckpointMetadata} metadata
   * @param {ChannelVersions} newVersions
   * @returns {Promise<RunnableConfig>}
   */
  async put(config, checkpoint, metadata, newVersions) {
    const { thread_id: thread, checkpoint_ns: ns = '' } = config.configurable ?? {};
    const id = checkpoint.id;
    checkIds({ thread_id: thread, checkpoint_ns: ns, 'checkpoint.id': id });
    const store = storeName(this.#prefix, thread);
    const parent = getCheckpointId(config) || undefined;

    const { channel_values: values, ...rest } = copyCheckpoint(checkpoint);
    const changed = Object.entries(newVersions).filter(([channel]) => Object.hasOwn(values, channel));
    const [packedRest, packedMetadata, ...packedValues] = await Promise.all(
      [rest, metadata, ...changed.map(([channel]) => values[channel])].map((value) => this.#dump(value)),
    );
    /** @type {CheckpointRecord} */
    const record = {
      format, checkpoint_ns: ns, checkpoint_id: id, ...(parent !== undefined && parent !== id && { parent_id: parent }),
      channels: Object.keys(values).filter((channel) => Object.hasOwn(rest.channel_versions, channel)),
      checkpoint: packedRest.packed, metadata: packedMetadata.packed,
    };
    const operations = changed.map(([channel, version], i) => (
      create(channelKey(ns, channel, version), { channel, version, value: packedValues[i].packed })
    ));
    operations.push(create(checkpointKey(ns, id), record, { ...tagsOf(metadata), id }));

    await this.#write(store, piecesOf([packedRest, packedMetadata, ...packedValues]));
    await this.#write(store, operations, (operation, item) => {
      if (operation.key === checkpointKey(ns, id)) return replaceBy(record, operation, item);
      if (isDeepStrictEqual(item.value, operation.value)) return undefined;
      throw new CounterfoilError({
        problem: 'item-exists', status: 412, etag: item.etag,
        detail: `a channel has another value under the same version (${item.key}): versions must come from getNextVersion`,
      });
    });
    await this.#advance(store, thread, ns, id, parent);
    return configOf(thread, ns, id);
  }

  /**
   * A task's write is kept as it was first written. Its errors, interrupts and
   * resumptions are kept as they were last written.
   * @override
   * @param {RunnableConfig} config
   * @param {PendingWrite[]} writes
   * @param {string} task
   * @param {string} [taskPath]
   */
  async putWrites(config, writes, task, taskPath = '') {
    const { thread_id: thread, checkpoint_ns: ns = '', checkpoint_id: id } = config.configurable ?? {};
    checkIds({ thread_id: thread, checkpoint_ns: ns, checkpoint_id: id, task_id: task });
    const dumped = await Promise.all(writes.map(([, value]) => this.#dump(value)));
    /** @type {Map<string, Operation>} */
    const operations = new Map();
    writes.forEach(([channel], i) => {
      const index = Object.hasOwn(WRITES_IDX_MAP, channel) ? WRITES_IDX_MAP[channel] : i;
      const key = writeKey(ns, id, task, index);
      /** @type {WriteRecord} */
      const value = { task_id: task, task_path: taskPath, index, channel, value: dumped[i].packed };
      operations.set(key, index < 0 ? { op: 'put', key, value } : create(key, value));
    });
    const store = storeName(this.#prefix, thread);
    await this.#write(store, piecesOf(dumped));
    await this.#write(store, [...operations.values()], () => undefined);
  }

  /**
   * Markers go first, and the thread's entry in the list of threads last: after
   * a crash in between, the thread is empty for a graph, and a second call
   * finishes the work.
   * @override
   * @param {string} thread
   */
  async deleteThread(thread) {
    checkIds({ thread_id: thread });
    const store = storeName(this.#prefix, thread);
    const keys = [];
    for await (const { key } of this.#client.list(store, '', { values: false })) keys.push(key);
    const isMarker = (/** @type {string} */ key) => key.startsWith(markerPrefix);
    keys.sort((a, b) => Number(isMarker(b)) - Number(isMarker(a)));
    for (let at = 0; at < keys.length; at += batchOps) {
      await this.#client.batch(store, keys.slice(at, at + batchOps).map((key) => ({ op: 'delete', key })));
    }
    for (const slot of this.#markers.keys()) if (slot.startsWith(`${store} `)) this.#markers.delete(slot);
    await this.#client.remove(this.#prefix, threadKey(thread));
  }

  /** @returns {AsyncGenerator<string>} */
  async *#threads() {
    for await (const { value } of this.#client.list(this.#prefix, 't:', { values: true })) yield value.thread_id;
  }

  /**
   * @param {string} store
   * @param {string} key
   * @returns {Promise<CheckpointRecord | undefined>}
   */
  async #record(store, key) {
    const record = (await this.#client.get(store, key))?.value;
    if (!record || record.format === format) return record;
    throw new CounterfoilError({ problem: 'unknown-format', status: 0, detail: `the checkpoint ${key} in ${store} has format ${record.format}, and this saver knows ${format}: use a newer one` });
  }

  /**
   * @param {string} store
   * @param {string} thread
   * @param {CheckpointRecord} record
   * @param {any} metadata
   * @returns {Promise<CheckpointTuple>}
   */
  async #tuple(store, thread, record, metadata) {
    const { checkpoint_ns: ns, checkpoint_id: id, parent_id: parent } = record;
    const [checkpoint, writes] = await Promise.all([this.#checkpoint(store, record), this.#writes(store, ns, id)]);
    if (checkpoint.v < 4 && parent !== undefined) await this.#migrateSends(checkpoint, store, ns, parent);
    return {
      config: configOf(thread, ns, id),
      checkpoint,
      metadata,
      pendingWrites: writes,
      ...(parent !== undefined && { parentConfig: configOf(thread, ns, parent) }),
    };
  }

  /**
   * @param {string} store
   * @param {CheckpointRecord} record
   * @returns {Promise<Checkpoint>}
   */
  async #checkpoint(store, record) {
    const rest = await this.#load(store, record.checkpoint);
    const entries = await mapBounded(record.channels, async (channel) => {
      const item = await this.#client.get(store, channelKey(record.checkpoint_ns, channel, rest.channel_versions[channel]));
      return item ? [[channel, await this.#load(store, item.value.value)]] : [];
    });
    return { ...rest, channel_values: Object.fromEntries(entries.flat()) };
  }

  /**
   * @param {string} store
   * @param {string} ns
   * @param {string} id
   * @returns {Promise<CheckpointPendingWrite[]>}
   */
  async #writes(store, ns, id) {
    /** @type {WriteRecord[]} */
    const records = [];
    for await (const { value } of this.#client.list(store, writesPrefix(ns, id), { values: true })) records.push(value);
    const order = (/** @type {WriteRecord} */ w) => writesSortKey(w.task_path, w.task_id, w.index);
    records.sort((a, b) => compareWritesSortKeys(order(a), order(b)));
    return mapBounded(records, async (w) => [w.task_id, w.channel, await this.#load(store, w.value)]);
  }

  /**
   * Checkpoints before version 4 found what was sent to tasks in the writes of
   * their parents.
   * @param {Checkpoint} checkpoint
   * @param {string} store
   * @param {string} ns
   * @param {string} parent
   */
  async #migrateSends(checkpoint, store, ns, parent) {
    const sent = (await this.#writes(store, ns, parent)).filter(([, channel]) => channel === TASKS);
    const versions = Object.values(checkpoint.channel_versions);
    checkpoint.channel_values[TASKS] = sent.map(([, , value]) => value);
    checkpoint.channel_versions[TASKS] = versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }

  /**
   * @param {string} store
   * @param {string} ns
   * @returns {Promise<Marker | undefined>}
   */
  async #marker(store, ns) {
    const item = await this.#client.get(store, markerKey(ns));
    return item && { id: item.value.checkpoint_id, etag: item.etag };
  }

  /**
   * advance moves the namespace's marker to a checkpoint that is written, unless
   * it stands at a later one of another branch.
   * @param {string} store
   * @param {string} thread
   * @param {string} ns
   * @param {string} id
   * @param {string | undefined} parent
   */
  async #advance(store, thread, ns, id, parent) {
    const key = markerKey(ns);
    const slot = `${store} ${key}`;
    const stays = (/** @type {Marker} */ marker) => marker.id === id || (marker.id > id && marker.id !== parent);
    for (let round = 0; round < contendedMax; round++) {
      let marker = this.#markers.get(slot);
      if (!marker || stays(marker)) marker = await this.#marker(store, ns);
      this.#markers.delete(slot);
      if (marker && stays(marker)) return;
      if (!marker) await this.#enlist(thread);
      try {
        const etag = await this.#client.put(store, key, { checkpoint_ns: ns, checkpoint_id: id }, marker ? { 'If-Match': marker.etag } : { 'If-None-Match': '*' });
        remember(this.#markers, slot, { id, etag });
        return;
      } catch (error) {
        // Somebody else moved it, or this is the repeat of what was done: look again.
        if (!isProblem(error, 'etag-mismatch', 'item-exists')) throw error;
      }
    }
    throw contended(`the marker ${key} in ${store}`);
  }

  /**
   * enlist enters a thread in the list of threads.
   * @param {string} thread
   */
  async #enlist(thread) {
    try {
      await this.#client.put(this.#prefix, threadKey(thread), { thread_id: thread }, { 'If-None-Match': '*' });
    } catch (error) {
      if (!isProblem(error, 'item-exists')) throw error;
    }
  }

  /**
   * write does operations, as many as go into one commit at a time. What is
   * there already is put to onExisting, which returns the operation to do
   * instead, or undefined for none.
   * @param {string} store
   * @param {Operation[]} operations
   * @param {(operation: Operation, item: Item) => Operation | undefined} [onExisting]
   */
  async #write(store, operations, onExisting = (operation) => operation) {
    for (let commit of commits(operations)) {
      for (let rounds = commit.length + contendedMax; commit.length > 0; rounds--) {
        if (rounds === 0) throw contended(`items in ${store}`);
        const failed = await this.#commit(store, commit);
        if (failed === undefined) break;
        const item = await this.#client.get(store, commit[failed].key);
        if (!item) continue; // deleted meanwhile
        const instead = onExisting(commit[failed], item);
        commit = commit.flatMap((operation, i) => (i !== failed ? [operation] : instead ? [instead] : []));
      }
    }
  }

  /**
   * commit returns the index of the operation whose condition failed.
   * @param {string} store
   * @param {Operation[]} operations
   */
  async #commit(store, operations) {
    try {
      await this.#client.batch(store, operations);
      return undefined;
    } catch (error) {
      if (isProblem(error, 'item-exists', 'etag-mismatch') && error.operation !== undefined) return error.operation;
      throw error;
    }
  }

  /** @param {unknown} value */
  async #dump(value) {
    return pack(...(await this.serde.dumpsTyped(value)));
  }

  /**
   * @param {string} store
   * @param {Packed} packed
   */
  async #load(store, packed) {
    return this.serde.loadsTyped(...(await unpack(packed, (key) => this.#client.get(store, key))));
  }
}

/**
 * replaceBy returns how a checkpoint's item becomes the record; undefined if it
 * is that already. A checkpoint put on top of itself keeps its parent.
 * @param {CheckpointRecord} record
 * @param {Operation} operation
 * @param {Item} item
 * @returns {Operation | undefined}
 */
function replaceBy(record, operation, item) {
  if (isDeepStrictEqual(item.value, record)) return undefined;
  const parent = record.parent_id ?? item.value.parent_id;
  const value = { ...record, ...(parent !== undefined && { parent_id: parent }) };
  if (isDeepStrictEqual(item.value, value)) return undefined;
  return { op: 'put', key: operation.key, value, tags: operation.tags, if_match: item.etag };
}

/**
 * @param {string} key
 * @param {unknown} value
 * @param {Record<string, string>} [tags]
 * @returns {Operation}
 */
function create(key, value, tags) {
  return { op: 'put', key, value, ...(tags && { tags }), if_none_match: '*' };
}

/**
 * commits splits operations into batches that the API takes.
 * @param {Operation[]} operations
 */
function commits(operations) {
  /** @type {Operation[][]} */
  const batches = [];
  let chars = Infinity;
  for (const operation of operations) {
    const size = JSON.stringify(operation).length;
    const last = batches.at(-1);
    if (last && last.length < batchOps && chars + size <= batchChars) {
      last.push(operation);
      chars += size;
    } else {
      batches.push([operation]);
      chars = size;
    }
  }
  return batches;
}

/**
 * tagsOf is what of metadata, or of a filter on it, the store can look for.
 * @param {Record<string, any>} metadata
 * @returns {Record<string, string>}
 */
function tagsOf({ source, step }) {
  return {
    ...(typeof source === 'string' && /^[a-z]{1,64}$/.test(source) && { source }),
    ...(Number.isSafeInteger(step) && { step: String(step) }),
  };
}

/**
 * @param {string} thread
 * @param {string} ns
 * @param {string} id
 * @returns {RunnableConfig}
 */
function configOf(thread, ns, id) {
  return { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: id } };
}

/** @param {Record<string, unknown>} ids */
function checkIds(ids) {
  for (const [name, id] of Object.entries(ids)) {
    if (typeof id !== 'string') throw new TypeError(`${name} must be a string, not ${id === null ? 'null' : typeof id}: pass { configurable: { thread_id: "…" } }`);
    if (id === '' && name !== 'checkpoint_ns') throw new TypeError(`${name} must not be empty`);
    if (name.startsWith('checkpoint') && name !== 'checkpoint_ns' && Buffer.byteLength(id) > idBytes) {
      throw new RangeError(`${name} must not be longer than ${idBytes} bytes`);
    }
  }
}

/** @param {string} what */
function contended(what) {
  return new CounterfoilError({ problem: 'contended', status: 409, detail: `others were faster ${contendedMax} times in a row at ${what}: is the same thread run twice at once?`, safeToRetry: true });
}
