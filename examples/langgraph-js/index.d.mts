import type { BaseCheckpointSaver, SerializerProtocol } from '@langchain/langgraph-checkpoint';
import type { RunnableConfig } from '@langchain/core/runnables';
import type {
  ChannelVersions, Checkpoint, CheckpointListOptions, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory, PendingWrite,
} from '@langchain/langgraph-checkpoint';

export interface CounterfoilOptions {
  /** Where the sidecar's data listener is: `http://127.0.0.1:8100`. */
  url: string;
  /** Whose threads these are, 1 to 256 bytes of UTF-8. Sent with each request; another user sees none of them. */
  user: string;
  /** Begins the stores' names: 1 to 64 of `A-Z a-z 0-9 _ . -`, not a dot first; `langgraph` by default. The store of that very name lists the threads. */
  prefix?: string;
  /** The sidecar's token, where it asks for one. */
  token?: string;
  /** The run that writes. With `fence`. */
  run?: string;
  /** The lease's fence: a write is refused (`fenced`) once another holds the run. With `run`. */
  fence?: number;
  /** The most that one attempt may take, 1 to 600000 ms; 30000 by default. */
  timeoutMs?: number;
  /** How often a request is sent at most when no answer comes, 1 to 10; 3 by default. */
  attempts?: number;
  /** Instead of the global one. */
  fetch?: typeof globalThis.fetch;
}

/**
 * Keeps LangGraph's checkpoints in the stores of a Counterfoil sidecar: a thread
 * is a store, and only its user sees it.
 *
 * Methods reject with a {@link CounterfoilError} where the sidecar refuses or
 * cannot be reached, and with a TypeError or RangeError where an id or a value
 * is none that can be kept.
 */
export declare class CounterfoilSaver implements BaseCheckpointSaver<number> {
  constructor(options: CounterfoilOptions, serde?: SerializerProtocol);
  serde: SerializerProtocol;
  toJSON(): string;
  get(config: RunnableConfig): Promise<Checkpoint | undefined>;
  getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined>;
  list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple>;
  put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, newVersions: ChannelVersions): Promise<RunnableConfig>;
  putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath?: string): Promise<void>;
  deleteThread(threadId: string): Promise<void>;
  getDeltaChannelHistory(options: { config: RunnableConfig; channels: string[] }): Promise<Record<string, DeltaChannelHistory>>;
  getNextVersion(current: number | undefined): number;
}

/** What the API, or the way to it, refused. */
export declare class CounterfoilError extends Error {
  /** The problem's name, such as `fenced`; `unreachable` where no answer came. */
  problem: string;
  /** The HTTP status; 0 where no answer came. */
  status: number;
  /** What to do about it, in the API's words. */
  detail: string;
  /** The index of the operation that a batch failed on. */
  operation: number | undefined;
  /** The item's version as it is, where a condition failed and there is one. */
  etag: string | undefined;
  /** The same request, later and by itself, may succeed. */
  safeToRetry: boolean;
}
