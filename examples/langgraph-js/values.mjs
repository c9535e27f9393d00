// How a value of LangGraph becomes the JSON of an item, and back. What its
// serde makes of it, bytes, travels as base64; much of it as pieces, which are
// items of their own under the digest of their content.
import { CounterfoilError } from './client.mjs';
import { digest, pieceKey } from './names.mjs';

// pieceBytes keeps a piece, a third longer in base64, below the API's 1 MiB, and a page of 20 items small.
export const pieceBytes = 512 * 1024;
export const valueMax = 64 * 1024 * 1024; // bytes of one value
const parallel = 8;

/**
 * A value as it is stored: whole, or the digests of its pieces in order.
 * @typedef {{ type: string, base64: string } | { type: string, pieces: string[] }} Packed
 */
/** @typedef {import('./client.mjs').Operation} Operation */

/**
 * pack returns a value's stored form, and the operations that write its pieces.
 * They go first. One that is there already is written again as it was.
 * @param {string} type
 * @param {Uint8Array} bytes
 * @returns {{ packed: Packed, pieces: Operation[] }}
 */
export function pack(type, bytes) {
  if (bytes.length > valueMax) {
    throw new RangeError(`a value of ${bytes.length} bytes is more than the ${valueMax} that a checkpoint may hold: keep it elsewhere, and its address in the state`);
  }
  if (bytes.length <= pieceBytes) return { packed: { type, base64: base64(bytes) }, pieces: [] };
  const pieces = [];
  const digests = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes);
    const name = digest(piece);
    digests.push(name);
    pieces.push({ op: /** @type {const} */ ('put'), key: pieceKey(name), value: { base64: base64(piece) } });
  }
  return { packed: { type, pieces: digests }, pieces };
}

/**
 * piecesOf returns the operations that write the pieces of values, each piece
 * once, however many values have it.
 * @param {{ pieces: Operation[] }[]} values
 */
export function piecesOf(values) {
  return [...new Map(values.flatMap(({ pieces }) => pieces).map((piece) => [piece.key, piece])).values()];
}

/**
 * unpack returns a value's type and bytes.
 * @param {Packed} packed
 * @param {(key: string) => Promise<import('./client.mjs').Item | undefined>} get reads an item
 * @returns {Promise<[string, Uint8Array]>}
 */
export async function unpack(packed, get) {
  if ('base64' in packed) return [packed.type, new Uint8Array(Buffer.from(packed.base64, 'base64'))];
  const pieces = await mapBounded(packed.pieces, async (name) => {
    const bytes = Buffer.from((await get(pieceKey(name)))?.value.base64 ?? '', 'base64');
    if (digest(bytes) === name) return bytes;
    throw new CounterfoilError({ problem: 'incomplete', status: 0, detail: `a piece of a value, ${pieceKey(name)}, is missing or not what was written: was the thread deleted meanwhile?` });
  });
  return [packed.type, new Uint8Array(Buffer.concat(pieces))];
}

/** @param {Uint8Array} bytes */
function base64(bytes) {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}

/**
 * mapBounded is Promise.all over items, a few at a time. After the first
 * failure it begins no more of them.
 * @template T, R
 * @param {Iterable<T>} items
 * @param {(item: T) => Promise<R>} act
 * @returns {Promise<R[]>}
 */
export async function mapBounded(items, act) {
  const todo = [...items].entries();
  /** @type {R[]} */
  const done = [];
  let failed = false;
  const work = async () => {
    for (const [i, item] of todo) {
      if (failed) return;
      done[i] = await act(item);
    }
  };
  const guarded = () => work().catch((error) => ((failed = true), Promise.reject(error)));
  await Promise.all(Array.from({ length: parallel }, guarded));
  return done;
}
