// How threads, namespaces, checkpoints, channels and tasks become the names of
// stores and items, which have 1 to 128 characters.
import { createHash } from 'node:crypto';

const partMax = 36; // characters: a UUID fits. The longest key has 3 parts, 2 + 3*37 + an index.
const plain = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/;

/**
 * part is text where that is short and plain, and else a digest of it. The two
 * cannot meet: only digests begin with a tilde.
 * @param {string} text
 * @param {number} [max]
 */
function part(text, max = partMax) {
  if (text === '' || (text.length <= max && plain.test(text))) return text;
  return '~' + digest(Buffer.from(text, 'utf16le')).slice(0, 32);
}

/** @param {Uint8Array} bytes */
export function digest(bytes) {
  return createHash('sha256').update(bytes).digest('base64url');
}

/**
 * @param {string} prefix
 * @param {string} thread
 */
export function storeName(prefix, thread) {
  return `${prefix}/${part(thread, 127 - prefix.length)}`;
}

/** @param {string} thread */
export const threadKey = (thread) => `t:${part(thread, 100)}`;

/** @param {string} ns */
export const markerKey = (ns) => `m:${part(ns)}`;
export const markerPrefix = 'm:';

/** @param {string} [ns] all namespaces without one */
export const checkpointPrefix = (ns) => (ns === undefined ? 'c:' : `c:${part(ns)}:`);

/**
 * @param {string} ns
 * @param {string} checkpoint
 */
export const checkpointKey = (ns, checkpoint) => checkpointPrefix(ns) + part(checkpoint);

/**
 * @param {string} ns
 * @param {string} channel
 * @param {string | number} version
 */
export const channelKey = (ns, channel, version) => `v:${part(ns)}:${part(channel)}:${part(String(version))}`;

/**
 * @param {string} ns
 * @param {string} checkpoint
 * @param {string} [task] all tasks without one
 */
export const writesPrefix = (ns, checkpoint, task) => `w:${part(ns)}:${part(checkpoint)}:${task === undefined ? '' : `${part(task)}:`}`;

/**
 * @param {string} ns
 * @param {string} checkpoint
 * @param {string} task
 * @param {number} index
 */
export const writeKey = (ns, checkpoint, task, index) => writesPrefix(ns, checkpoint, task) + index;

/** @param {string} name the piece's digest */
export const pieceKey = (name) => `p:${name}`;
