// The store API of a sidecar, as far as the saver needs it.
import { setTimeout as delay } from 'node:timers/promises';

const answerMax = 64 * 1024 * 1024; // bytes; a page of 20 items stays far below
const backoffMs = 50; // before the second attempt; doubled for each one after
const pageKeys = 100; // the API's most
const pageValues = 20;
export const batchOps = 100; // the API's most
const rememberedMax = 1000;

/** What the API, or the way to it, refused. */
export class CounterfoilError extends Error {
  /**
   * @param {{ problem: string, status: number, detail: string, operation?: number, etag?: string, safeToRetry?: boolean, cause?: unknown }} what
   */
  constructor({ problem, status, detail, operation, etag, safeToRetry = false, cause }) {
    super(`${problem}: ${detail}`, { cause });
    this.name = 'CounterfoilError';
    /** The problem's name, such as `fenced`; `unreachable` where no answer came. */
    this.problem = problem;
    /** The HTTP status; 0 where no answer came. */
    this.status = status;
    /** What to do about it, in the API's words. */
    this.detail = detail;
    /** The index of the operation that a batch failed on. */
    this.operation = operation;
    /** The item's version as it is, where a condition failed and there is one. */
    this.etag = etag;
    /** The same request, later and by itself, may succeed. */
    this.safeToRetry = safeToRetry;
  }
}

/**
 * One item as the API answers it. Lists of keys leave `value` out.
 * @typedef {{ key: string, etag: string, value?: any, tags?: Record<string, string> }} Item
 */
/**
 * One operation of a batch.
 * @typedef {{ op: 'put' | 'delete', key: string, value?: unknown, tags?: Record<string, string>, if_match?: string, if_none_match?: '*' }} Operation
 */
/**
 * @typedef {object} ClientOptions
 * @property {string} url Where the sidecar's data listener is: `http://127.0.0.1:8100`.
 * @property {string} user Whose items these are, 1 to 256 bytes of UTF-8. Sent with each request; another user sees none of them.
 * @property {string} [token] The sidecar's token, where it asks for one.
 * @property {string} [run] The run that writes. With `fence`.
 * @property {number} [fence] The lease's fence: a write is refused (`fenced`) once another holds the run. With `run`.
 * @property {number} [timeoutMs] The most that one attempt may take, 1 to 600000; 30000 by default.
 * @property {number} [attempts] How often a request is sent at most when no answer comes, 1 to 10; 3 by default.
 * @property {typeof globalThis.fetch} [fetch] Instead of the global one.
 */

/** Sends requests. Each is safe to repeat: what it sends is a read, a create, a replacement of one version, or the same again. */
export class Client {
  #base;
  #identity;
  /** @type {Record<string, string>} */
  #fencing;
  #timeoutMs;
  #attempts;
  #fetch;
  /** @type {Map<string, true>} the stores that were found to keep their users apart */
  #apart = new Map();

  /** @param {ClientOptions} options */
  constructor({ url, user, token, run, fence, timeoutMs = 30_000, attempts = 3, fetch = globalThis.fetch }) {
    const at = URL.canParse(String(url)) ? new URL(url) : undefined;
    if (!at || !/^https?:$/.test(at.protocol) || at.search || at.hash) {
      throw new TypeError(`url must be where the sidecar is, such as http://127.0.0.1:8100, not ${JSON.stringify(url)}`);
    }
    if (!isName(user)) throw new TypeError('user must be a text of 1 to 256 bytes: it says whose threads these are');
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) throw new TypeError('token must be visible ASCII characters');
    if ((run === undefined) !== (fence === undefined)) throw new TypeError('run and fence go together: give both, or neither');
    if (run !== undefined && !isName(run)) throw new TypeError('run must be a text of 1 to 256 bytes');
    if (fence !== undefined && !inRange(fence, 1, Number.MAX_SAFE_INTEGER)) throw new TypeError('fence must be a whole number from 1: the lease says which');
    if (!inRange(timeoutMs, 1, 600_000)) throw new TypeError('timeoutMs must be a whole number from 1 to 600000');
    if (!inRange(attempts, 1, 10)) throw new TypeError('attempts must be a whole number from 1 to 10');
    this.#base = at.href.replace(/\/$/, '') + '/-/v1/stores/';
    this.#identity = { 'Counterfoil-User': encodeURIComponent(user), ...(token !== undefined && { 'Counterfoil-Token': token }) };
    this.#fencing = run !== undefined ? { 'Counterfoil-Run': encodeURIComponent(run), 'Counterfoil-Fence': String(fence) } : {};
    this.#timeoutMs = timeoutMs;
    this.#attempts = attempts;
    this.#fetch = fetch;
  }

  /**
   * get returns an item, or undefined where there is none.
   * @param {string} store
   * @param {string} key
   * @returns {Promise<Item | undefined>}
   */
  async get(store, key) {
    if (!(await this.#isThere(store))) return undefined;
    return (await orAbsent(this.#send('GET', itemPath(store, key))))?.body;
  }

  /**
   * put writes one item, and returns its ETag. Without a condition it replaces what is there.
   * It makes the store if there is none, as batch does.
   * @param {string} store
   * @param {string} key
   * @param {unknown} value
   * @param {{ 'If-Match'?: string, 'If-None-Match'?: '*' }} [condition]
   * @returns {Promise<string>}
   */
  async put(store, key, value, condition = {}) {
    const what = { body: { value }, headers: { ...this.#fencing, ...condition } };
    const { body } = await this.#inStore(store, () => this.#send('PUT', itemPath(store, key), what));
    return body.etag;
  }

  /**
   * batch does up to 100 operations, all or none.
   * @param {string} store
   * @param {Operation[]} operations
   */
  async batch(store, operations) {
    const what = { body: { operations }, headers: this.#fencing };
    await this.#inStore(store, () => this.#send('POST', `${encodeURIComponent(store)}/batch`, what));
  }

  /**
   * remove deletes an item, if it is there.
   * @param {string} store
   * @param {string} key
   */
  async remove(store, key) {
    if (!(await this.#isThere(store))) return;
    await orAbsent(this.#send('DELETE', itemPath(store, key), { headers: this.#fencing }));
  }

  /**
   * list yields the items whose keys begin with prefix, in order of creation.
   * @param {string} store
   * @param {string} prefix
   * @param {{ values: boolean, tags?: Record<string, string> }} want
   * @returns {AsyncGenerator<Item>}
   */
  async *list(store, prefix, { values, tags = {} }) {
    if (!(await this.#isThere(store))) return;
    let after;
    do {
      const query = new URLSearchParams({ limit: String(values ? pageValues : pageKeys) });
      if (prefix) query.set('prefix', prefix);
      if (!values) query.set('keys_only', 'true');
      for (const [name, value] of Object.entries(tags)) query.append('tag', `${name}:${value}`);
      if (after) query.set('after', after);
      const page = (await orAbsent(this.#send('GET', `${encodeURIComponent(store)}/items?${query}`)))?.body;
      yield* page?.items ?? [];
      after = page?.next;
    } while (after);
  }

  /**
   * isThere reports whether there is a store. Like inStore it lets nobody near
   * the items of one that does not keep its users apart.
   * @param {string} store
   */
  async #isThere(store) {
    if (this.#apart.has(store)) return true;
    const answer = await orAbsent(this.#send('GET', encodeURIComponent(store)));
    if (answer) this.#check(store, answer.body);
    return answer !== undefined;
  }

  /**
   * inStore does what needs a store, which it makes if it is not there.
   * @template T
   * @param {string} store
   * @param {() => Promise<T>} act
   */
  async #inStore(store, act) {
    if (!this.#apart.has(store)) await this.#make(store);
    try {
      return await act();
    } catch (error) {
      if (!isProblem(error, 'not-found')) throw error;
      await this.#make(store);
      return act();
    }
  }

  /** @param {string} store */
  async #make(store) {
    this.#check(store, (await this.#send('PUT', encodeURIComponent(store), { body: { user_isolation: true } })).body);
  }

  /**
   * @param {string} store
   * @param {{ user_isolation: boolean }} answer
   */
  #check(store, answer) {
    if (answer.user_isolation === true) return remember(this.#apart, store, /** @type {const} */ (true));
    throw new CounterfoilError({
      problem: 'not-isolated',
      status: 409,
      detail: `the store ${store} was made without user_isolation: one user would read another's threads; set another prefix`,
    });
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {{ body?: unknown, headers?: Record<string, string> }} [what]
   * @returns {Promise<{ body: any }>}
   */
  async #send(method, path, { body, headers = {} } = {}) {
    const init = {
      method,
      headers: { ...this.#identity, ...headers, ...(body !== undefined && { 'Content-Type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      redirect: /** @type {const} */ ('error'),
    };
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(this.#base + path, init);
      } catch (error) {
        const again = error instanceof CounterfoilError && (error.status === 0 || (error.status >= 500 && error.safeToRetry));
        if (!again || attempt >= this.#attempts) throw error;
        await delay(backoffMs * 2 ** (attempt - 1));
      }
    }
  }

  /**
   * @param {string} url
   * @param {RequestInit} init
   */
  async #once(url, init) {
    let answer, text;
    try {
      answer = await this.#fetch(url, { ...init, signal: AbortSignal.timeout(this.#timeoutMs) });
      text = await readText(answer);
    } catch (cause) {
      if (cause instanceof CounterfoilError) throw cause;
      const why = /** @type {any} */ (cause)?.cause?.message || /** @type {any} */ (cause)?.message || String(cause);
      throw new CounterfoilError({ problem: 'unreachable', status: 0, detail: `${init.method} ${url} got no answer: ${why}`, safeToRetry: true, cause });
    }
    const body = parse(text);
    if (answer.ok && (body !== undefined || text === '')) return { body };
    const { code = 'unexpected-answer' } = body?.error ?? {};
    throw new CounterfoilError({
      problem: typeof body?.type === 'string' ? body.type.replace(/^urn:counterfoil:problem:/, '') : code,
      status: answer.status,
      detail: body?.detail ?? `${init.method} ${url} was answered with status ${answer.status} and no problem document: is this a sidecar?`,
      operation: body?.operation,
      etag: body?.etag ?? answer.headers.get('ETag') ?? undefined,
      safeToRetry: body?.safe_to_retry === true,
    });
  }
}

/** @param {Response} answer */
async function readText(answer) {
  if (!answer.body) return '';
  const parts = [];
  let size = 0;
  for await (const part of /** @type {AsyncIterable<Uint8Array>} */ (/** @type {unknown} */ (answer.body))) {
    if ((size += part.length) > answerMax) {
      throw new CounterfoilError({ problem: 'answer-too-large', status: answer.status, detail: `an answer is longer than ${answerMax} bytes: is this a sidecar?` });
    }
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * @template T
 * @param {Promise<T>} sent
 * @returns {Promise<T | undefined>}
 */
async function orAbsent(sent) {
  try {
    return await sent;
  } catch (error) {
    if (isProblem(error, 'not-found')) return undefined;
    throw error;
  }
}

/**
 * @param {unknown} error
 * @param {...string} names
 * @returns {error is CounterfoilError}
 */
export function isProblem(error, ...names) {
  return error instanceof CounterfoilError && names.includes(error.problem);
}

/**
 * remember forgets the oldest entry where there are too many.
 * @template T
 * @param {Map<string, T>} entries
 * @param {string} name
 * @param {T} entry
 */
export function remember(entries, name, entry) {
  entries.set(name, entry);
  if (entries.size > rememberedMax) entries.delete(/** @type {string} */ (entries.keys().next().value));
}

/**
 * @param {string} store
 * @param {string} key
 */
function itemPath(store, key) {
  return `${encodeURIComponent(store)}/items/${encodeURIComponent(key)}`;
}

/** @param {unknown} text */
function isName(text) {
  return typeof text === 'string' && text !== '' && !/\p{Surrogate}/u.test(text) && Buffer.byteLength(text) <= 256;
}

/**
 * @param {number} n
 * @param {number} min
 * @param {number} max
 */
function inRange(n, min, max) {
  return Number.isSafeInteger(n) && n >= min && n <= max;
}
