// What the public suite does not ask for.
import { createServer } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint';
import { CounterfoilError, CounterfoilSaver } from '../index.mjs';
import * as implementation from '../saver.mjs';
import { newSaver, url } from './kit.mjs';

/** @typedef {import('../index.mjs').CounterfoilOptions} Options */
/** @typedef {import('@langchain/core/runnables').RunnableConfig} RunnableConfig */
/** @typedef {{ method: string, path: string, headers: Headers, body: any, text: string }} Sent */

/** @type {typeof CounterfoilSaver} */
const declared = implementation.CounterfoilSaver; // the declarations say what is there
const meta = /** @type {const} */ ({ source: 'loop', step: 1, parents: {} });

describe('values', () => {
  it('keeps what is longer than 1 MiB, in pieces that are written first', async () => {
    const sent = recorder();
    const saver = newSaver({ fetch: sent.fetch });
    const big = incompressible(3_000_000);
    const small = 'as it was';
    const config = await put(saver, thread('big'), uuid6(1), { big, small });
    await saver.putWrites(config, [['big', big.slice(1)], ['small', small]], 'task');
    const tuple = await saver.getTuple(config);
    expect(tuple?.checkpoint.channel_values).toEqual({ big, small });
    expect(tuple?.pendingWrites).toEqual([['task', 'big', big.slice(1)], ['task', 'small', small]]);

    /** @type {Set<string>} */
    const written = new Set();
    for (const { body } of sent.requests.filter((r) => r.path.endsWith('/batch'))) {
      const named = body.operations.flatMap((/** @type {any} */ op) => op.value?.value?.pieces ?? []);
      for (const digest of named) expect(written).toContain(`p:${digest}`);
      for (const { key, value } of body.operations) {
        expect(JSON.stringify(value).length).toBeLessThanOrEqual(1024 * 1024);
        written.add(key);
      }
    }
    expect([...written].filter((key) => key.startsWith('p:')).length).toBeGreaterThanOrEqual(12);
  });

  it('writes what is the same in two checkpoints once', async () => {
    const sent = recorder();
    const saver = newSaver({ fetch: sent.fetch });
    const [one, two] = ['a', 'b'].map((letter) => letter + incompressible(700_000));
    const first = await put(saver, thread('same'), uuid6(1), { one, two });
    sent.requests.length = 0;
    const second = await put(saver, first, uuid6(2), { one, two: 'short' }, { two: 2 });
    expect(JSON.stringify(sent.requests.map((r) => r.body)).length).toBeLessThan(4096);
    expect((await saver.getTuple(second))?.checkpoint.channel_values).toEqual({ one, two: 'short' });
  });

  it('keeps more channels and writes than go into one commit', async () => {
    const saver = newSaver();
    const values = Object.fromEntries(Array.from({ length: 250 }, (_, i) => [`channel ${i}`, i]));
    const config = await put(saver, thread('many'), uuid6(1), values);
    await saver.putWrites(config, Object.entries(values), 'task');
    const tuple = await saver.getTuple(config);
    expect(tuple?.checkpoint.channel_values).toEqual(values);
    expect(tuple?.pendingWrites).toEqual(Object.entries(values).map(([channel, value]) => ['task', channel, value]));
  });

  it('keeps bytes, undefined and what JSON does not have', async () => {
    const saver = newSaver();
    const values = { bytes: new Uint8Array([0, 255, 128]), none: undefined, map: new Map([['k', new Set([1])]]), __proto: { lc: 3 }, text: '\u0000\ud83d\ude00' };
    const config = await put(saver, thread('kinds'), uuid6(1), values);
    expect((await saver.getTuple(config))?.checkpoint.channel_values).toEqual(values);
  });

  it('refuses a value of more than 64 MiB before anything is written', async () => {
    const sent = recorder();
    const saver = newSaver({ fetch: sent.fetch });
    await expect(put(saver, thread('huge'), uuid6(1), { huge: new Uint8Array(64 * 1024 * 1024 + 1) })).rejects.toThrow(RangeError);
    expect(sent.requests).toEqual([]);
  });
});

describe('names', () => {
  const long = 'a thread/with: ümlauts & more, '.repeat(10);

  it('keeps ids of any length and letters apart', async () => {
    const saver = newSaver();
    const ids = [long, `${long}!`, '~', '..', 'a/b', 'a%2Fb', 'A', 'a', 'x'.repeat(117), 'x'.repeat(118), 'x'.repeat(200)];
    for (const id of ids) {
      for (const ns of ['', long, `${long}!`]) {
        const config = await put(saver, { configurable: { thread_id: id, checkpoint_ns: ns } }, `${id.slice(0, 60)}-1`, { [`${long}${ns}`]: id + ns });
        await saver.putWrites(config, [[long, id + ns]], `${long}task`);
      }
    }
    for (const id of ids) {
      for (const ns of ['', long, `${long}!`]) {
        const tuple = await saver.getTuple({ configurable: { thread_id: id, checkpoint_ns: ns } });
        expect(tuple?.config.configurable).toEqual({ thread_id: id, checkpoint_ns: ns, checkpoint_id: `${id.slice(0, 60)}-1` });
        expect(tuple?.checkpoint.channel_values).toEqual({ [`${long}${ns}`]: id + ns });
        expect(tuple?.pendingWrites).toEqual([[`${long}task`, long, id + ns]]);
      }
    }
    const listed = await all(saver.list({}));
    expect(new Set(listed.map((t) => t.config.configurable?.thread_id))).toEqual(new Set(ids));
    expect(listed.length).toBe(3 * ids.length);
  });

  it('refuses ids that are none, and says how they look', async () => {
    const saver = newSaver();
    for (const thread_id of [7, null, '', {}]) {
      await expect(put(saver, { configurable: { thread_id } }, uuid6(1), {})).rejects.toThrow(/thread_id must/);
    }
    await expect(put(saver, thread('x'), 'ü'.repeat(129), {})).rejects.toThrow(/256 bytes/);
    await expect(saver.putWrites(thread('x'), [['c', 1]], 'task')).rejects.toThrow(/checkpoint_id must/);
  });
});

describe('putWrites', () => {
  it('keeps the first of a task\'s writes, and the last of its errors and interrupts', async () => {
    const saver = newSaver();
    const config = await put(saver, thread('writes'), uuid6(1), {});
    await saver.putWrites(config, [['a', 1], ['b', 2]], 'task');
    await saver.putWrites(config, [['a', 'other'], ['b', 'other'], ['c', 3]], 'task');
    await saver.putWrites(config, [['__error__', 'first']], 'task');
    await saver.putWrites(config, [['__error__', 'second']], 'task');
    expect((await saver.getTuple(config))?.pendingWrites).toEqual([
      ['task', '__error__', 'second'], ['task', 'a', 1], ['task', 'b', 2], ['task', 'c', 3],
    ]);
  });

  it('returns writes in the order of path, task and index', async () => {
    const saver = newSaver();
    const config = await put(saver, thread('order'), uuid6(1), {});
    await saver.putWrites(config, [['x', 'last']], 'a', '~2');
    await saver.putWrites(config, [['x', 'fourth']], 'b', '~1');
    await saver.putWrites(config, Array.from({ length: 12 }, (_, i) => ['x', i]), 'aa', '~1');
    await saver.putWrites(config, [['x', 'first']], 'z');
    expect((await saver.getTuple(config))?.pendingWrites?.map(([, , value]) => value))
      .toEqual(['first', ...Array.from({ length: 12 }, (_, i) => i), 'fourth', 'last']);
  });

  it('makes the store where the checkpoint is not there yet', async () => {
    const saver = newSaver();
    const config = { configurable: { thread_id: 'early', checkpoint_ns: '', checkpoint_id: uuid6(1) } };
    await saver.putWrites(config, [['x', 1]], 'task');
    expect(await saver.getTuple(config)).toBeUndefined();
    await put(saver, thread('early'), config.configurable.checkpoint_id, {});
    expect((await saver.getTuple(thread('early')))?.pendingWrites).toEqual([['task', 'x', 1]]);
  });
});

describe('put', () => {
  it('does nothing the second time, and replaces what differs', async () => {
    const saver = newSaver();
    const parent = await put(saver, thread('twice'), uuid6(1), { a: 1 });
    const checkpoint = { ...emptyCheckpoint(), id: uuid6(2), channel_values: { a: 2 }, channel_versions: { a: 2 } };
    const config = await saver.put(parent, checkpoint, meta, { a: 2 });
    const before = await saver.getTuple(config);
    await saver.put(parent, checkpoint, meta, { a: 2 });
    expect(await saver.getTuple(config)).toEqual(before);
    // On top of itself, as durability "exit" does it: it keeps its parent.
    await saver.put(config, checkpoint, { ...meta, step: 9 }, {});
    const after = await saver.getTuple(config);
    expect(after?.metadata?.step).toBe(9);
    expect(after?.parentConfig).toEqual(parent);
    expect(after?.checkpoint).toEqual(before?.checkpoint);
    expect((await all(saver.list(thread('twice'), { filter: { step: 9 } }))).length).toBe(1);
  });

  it('refuses another value under the version of a channel', async () => {
    const saver = newSaver();
    const parent = await put(saver, thread('clash'), uuid6(1), { a: 1 });
    await expect(put(saver, parent, uuid6(2), { a: 'other' })).rejects.toMatchObject({ problem: 'item-exists', detail: expect.stringContaining('getNextVersion') });
    expect((await saver.getTuple(thread('clash')))?.config).toEqual(parent);
  });

  it('gives two branches versions of their own', () => {
    const saver = newSaver();
    const versions = Array.from({ length: 100 }, () => saver.getNextVersion(6.5));
    expect(new Set(versions).size).toBe(100);
    expect(versions.every((v) => v >= 7 && v < 8)).toBe(true);
    expect(saver.getNextVersion(undefined)).toBeGreaterThanOrEqual(1);
  });
});

describe('the marker', () => {
  it('moves after the checkpoint, and still names the one before where a process died between', async () => {
    const sent = recorder();
    const user = 'dies-between';
    const saver = newSaver({ user, fetch: sent.fetch });
    const id = uniqueThread();
    const first = await put(saver, thread(id), uuid6(1), { a: 1 });
    expect(sent.requests.map((r) => r.path.replace(/.*\/stores\//, '')).filter((path) => path.includes('batch') || path.includes('m%3A')).at(-1)).toContain('m%3A');
    sent.deny = (r) => r.method === 'PUT' && r.path.includes('m%3A');
    await expect(put(saver, first, uuid6(2), { a: 2 }, { a: 2 })).rejects.toMatchObject({ problem: 'unreachable' });
    const next = newSaver({ user });
    expect((await next.getTuple(thread(id)))?.config).toEqual(first);
    const third = await put(next, first, uuid6(3), { a: 3 }, { a: 3 });
    expect((await next.getTuple(thread(id)))?.config).toEqual(third);
  });

  it('stays at the later of two branches, whichever is written last', async () => {
    const user = 'two-at-once';
    const [one, two] = [newSaver({ user }), newSaver({ user })];
    const id = uniqueThread();
    const root = await put(one, thread(id), uuid6(1), { a: 1 });
    const [early, late] = [uuid6(2), uuid6(3)];
    const latest = await put(two, root, late, { a: 'late' }, { a: two.getNextVersion(1) });
    await put(one, root, early, { a: 'early' }, { a: one.getNextVersion(1) });
    expect((await one.getTuple(thread(id)))?.config).toEqual(latest);
    expect((await all(one.list(thread(id)))).map((t) => t.checkpoint.channel_values.a)).toEqual(['late', 'early', 1]);
  });

  it('follows the branch it stands on, even by a clock that is slow', async () => {
    const saver = newSaver();
    const slow = uuid6(1);
    const head = await put(saver, thread('slow'), uuid6(2), { a: 1 });
    const next = await put(saver, head, slow, { a: 2 }, { a: 2 });
    expect((await saver.getTuple(thread('slow')))?.config).toEqual(next);
  });

  it('is right after many at once', async () => {
    const user = 'many-at-once';
    const id = uniqueThread();
    const ids = Array.from({ length: 6 }, (_, i) => uuid6(i));
    const done = await Promise.allSettled(ids.map((checkpoint) => put(newSaver({ user }), thread(id), checkpoint, {})));
    expect(done.map((d) => d.status)).toEqual(ids.map(() => 'fulfilled'));
    expect((await newSaver({ user }).getTuple(thread(id)))?.checkpoint.id).toBe([...ids].sort().at(-1));
  });
});

describe('list', () => {
  it('is newest first, over pages, and heeds before, limit and filter', async () => {
    const saver = newSaver();
    const ids = Array.from({ length: 105 }, (_, i) => uuid6(i));
    /** @type {RunnableConfig} */
    let config = thread('pages');
    for (const [i, id] of ids.entries()) config = await put(saver, config, id, {}, {}, { ...meta, step: i, source: i % 2 ? 'loop' : 'input', writes: { by: i % 5 } });
    const listed = async (/** @type {import('@langchain/langgraph-checkpoint').CheckpointListOptions} */ options) => (
      (await all(saver.list(thread('pages'), options))).map((t) => t.checkpoint.id)
    );
    const newest = [...ids].reverse();
    expect(await listed({})).toEqual(newest);
    expect(await listed({ limit: 3 })).toEqual(newest.slice(0, 3));
    expect(await listed({ limit: 0 })).toEqual([]);
    const before = { configurable: { thread_id: 'pages', checkpoint_id: ids[50] } };
    expect(await listed({ before, limit: 2 })).toEqual([ids[49], ids[48]]);
    expect(await listed({ filter: { source: 'input', step: 4 } })).toEqual([ids[4]]);
    expect(await listed({ filter: { writes: { by: 0 } }, limit: 2 })).toEqual([ids[100], ids[95]]);
    expect(await listed({ filter: { step: '4' } })).toEqual([]);
  }, 60_000);
});

describe('deleteThread', () => {
  it('leaves nothing of the thread, and all of the others', async () => {
    const saver = newSaver();
    for (const id of ['gone', 'kept']) {
      /** @type {RunnableConfig} */
      let config = thread(id);
      for (let i = 0; i < 60; i++) {
        config = await put(saver, config, uuid6(i), { a: i }, { a: i });
        await saver.putWrites(config, [['a', i]], 'task');
      }
      await put(saver, { configurable: { thread_id: id, checkpoint_ns: 'child' } }, uuid6(1), { a: incompressible(600_000) });
    }
    const kept = await all(saver.list({ configurable: { thread_id: 'kept' } }));
    expect(kept.length).toBe(61);
    await saver.deleteThread('gone');
    await saver.deleteThread('gone');
    await saver.deleteThread('never was');
    expect(await saver.getTuple(thread('gone'))).toBeUndefined();
    expect(isDeepStrictEqual(await all(saver.list({})), kept)).toBe(true); // no megabytes in a failure's text
    await put(saver, thread('gone'), uuid6(1), { a: 'anew' });
    expect((await all(saver.list(thread('gone')))).map((t) => t.checkpoint.channel_values)).toEqual([{ a: 'anew' }]);
  }, 60_000);
});

describe('users, fences, errors', () => {
  it.each([['a', 'b'], ['ü b, /', 'ü b, /!'], ['b%2C', 'b,']])('keeps the users %j and %j apart', async (...users) => {
    const id = crypto.randomUUID();
    const [one, two] = users.map((user) => newSaver({ user: id + user }));
    await put(one, thread('shared'), uuid6(1), { a: 'one' });
    expect(await two.getTuple(thread('shared'))).toBeUndefined();
    expect(await all(two.list({}))).toEqual([]);
    await two.deleteThread('shared');
    await put(two, thread('shared'), uuid6(2), { a: 'two' });
    expect((await one.getTuple(thread('shared')))?.checkpoint.channel_values).toEqual({ a: 'one' });
  });

  it('refuses a store that was made for all users at once', async () => {
    const prefix = `open-${crypto.randomUUID()}`;
    const made = await fetch(`${url}/-/v1/stores/${prefix}%2Fx`, { method: 'PUT' });
    expect(made.status).toBe(201);
    const marker = `${url}/-/v1/stores/${prefix}%2Fx/items/m%3A`;
    await fetch(marker, { method: 'PUT', body: JSON.stringify({ value: { checkpoint_id: "another user's" } }) });
    const at = { configurable: { thread_id: 'x', checkpoint_ns: '', checkpoint_id: uuid6(1) } };
    for (const attempt of [
      () => put(newSaver({ prefix }), thread('x'), uuid6(1), {}),
      () => newSaver({ prefix }).getTuple(thread('x')),
      () => all(newSaver({ prefix }).list(thread('x'))),
      () => newSaver({ prefix }).putWrites(at, [['a', 1]], 'task'),
      () => newSaver({ prefix }).deleteThread('x'),
    ]) {
      await expect(attempt()).rejects.toMatchObject({ problem: 'not-isolated' });
    }
    expect((await fetch(marker)).status).toBe(200);
  });

  it('names user, token, run and fence, and is fenced once another has the run', async () => {
    const run = `run-${crypto.randomUUID()}`;
    const sent = recorder();
    const options = { user: 'fenced-user', prefix: run };
    const first = newSaver({ ...options, run, fence: await acquire(run), token: 'any', fetch: sent.fetch });
    const config = await put(first, thread('t'), uuid6(1), { a: 1 });
    for (const { method, path, headers } of sent.requests) {
      expect(headers.get('Counterfoil-User')).toBe('fenced-user');
      expect(headers.get('Counterfoil-Token')).toBe('any');
      const write = method !== 'GET' && /\/(batch|items\/)/.test(path);
      expect([path, headers.get('Counterfoil-Run')]).toEqual([path, write ? run : null]);
    }
    await fetch(`${url}/-/v1/runs/${run}/lease?fence=${sent.requests.find((r) => r.headers.has('Counterfoil-Fence'))?.headers.get('Counterfoil-Fence')}`, { method: 'DELETE' });
    const second = newSaver({ ...options, run, fence: await acquire(run) });
    const next = await put(second, config, uuid6(2), { a: 2 }, { a: 2 });
    const refusals = [put(first, config, uuid6(3), { a: 3 }, { a: 3 }), first.putWrites(config, [['a', 1]], 'late'), first.deleteThread('t')];
    for (const refused of await Promise.allSettled(refusals)) {
      expect(refused).toMatchObject({ status: 'rejected', reason: { name: 'CounterfoilError', problem: 'fenced', status: 412, detail: expect.stringMatching(/./) } });
    }
    expect((await first.getTuple(thread('t')))?.config).toEqual(next);
  });

  it('gives a refusal its name and what to do', async () => {
    const error = await put(newSaver({ url: `${url}/nowhere` }), thread('x'), uuid6(1), {}).catch((e) => e);
    expect(error).toBeInstanceOf(CounterfoilError);
    expect(error.status).toBeGreaterThanOrEqual(400);
    expect(error.detail).not.toBe('');
  });

  it('repeats what got no answer, and nothing is doubled', async () => {
    const sent = recorder();
    const saver = newSaver({ fetch: sent.fetch });
    const seen = new Set();
    sent.loseAnswer = (r) => !seen.has(r.method + r.path + r.text) && seen.add(r.method + r.path + r.text) !== undefined;
    const first = await put(saver, thread('lossy'), uuid6(1), { a: 1, big: incompressible(600_000) });
    await saver.putWrites(first, [['a', 2], ['b', 3]], 'task');
    const second = await put(saver, first, uuid6(2), { a: 2 }, { a: 2 });
    sent.loseAnswer = () => false;
    expect((await all(saver.list(thread('lossy')))).map((t) => t.config)).toEqual([second, first]);
    expect((await saver.getTuple(thread('lossy')))?.config).toEqual(second);
    expect((await saver.getTuple(first))?.pendingWrites).toEqual([['task', 'a', 2], ['task', 'b', 3]]);
  });

  it('gives up in bounded time where no answer comes', async () => {
    let asked = 0;
    const silent = createServer(() => void asked++);
    await new Promise((yes) => silent.listen(0, '127.0.0.1', () => yes(undefined)));
    const { port } = /** @type {import('node:net').AddressInfo} */ (silent.address());
    const saver = newSaver({ url: `http://127.0.0.1:${port}`, timeoutMs: 50, attempts: 2 });
    await expect(saver.getTuple(thread('x'))).rejects.toMatchObject({ problem: 'unreachable', status: 0, safeToRetry: true });
    expect(asked).toBe(2);
    silent.closeAllConnections();
    silent.close();
  });

  it('is not made with what it cannot use', () => {
    /** @type {[Partial<Options>, RegExp][]} */
    const bad = [
      [{ url: 'sidecar' }, /url must/], [{ url: 'ftp://x' }, /url must/], [{ user: '' }, /user must/], [{ user: 'ü'.repeat(129) }, /user must/], [{ user: '\ud800' }, /user must/],
      [{ run: 'r' }, /run and fence/], [{ fence: 1 }, /run and fence/], [{ run: 'r', fence: 0 }, /fence must/], [{ run: 'r', fence: NaN }, /fence must/],
      [{ timeoutMs: 0 }, /timeoutMs/], [{ attempts: 0 }, /attempts/], [{ prefix: 'a/' }, /prefix/], [{ prefix: '' }, /prefix/], [{ prefix: '..' }, /prefix/], [{ prefix: 'a/b' }, /prefix/], [{ token: 'a\nb' }, /token/],
    ];
    for (const [options, text] of bad) expect(() => new declared({ url, user: 'u', ...options })).toThrow(text);
  });
});

/** @param {string} thread_id */
function thread(thread_id) {
  return { configurable: { thread_id, checkpoint_ns: '' } };
}

function uniqueThread() {
  return `thread-${crypto.randomUUID()}`;
}

/**
 * put writes a checkpoint with these values, each at version 1 unless versions say otherwise.
 * @param {CounterfoilSaver} saver
 * @param {RunnableConfig} config
 * @param {string} id
 * @param {Record<string, unknown>} values
 * @param {Record<string, number>} [changed]
 * @param {any} [metadata]
 */
function put(saver, config, id, values, changed, metadata = meta) {
  const versions = { ...Object.fromEntries(Object.keys(values).map((channel) => [channel, 1])), ...changed };
  return saver.put(config, { ...emptyCheckpoint(), id, channel_values: values, channel_versions: versions }, metadata, changed ?? versions);
}

/**
 * @template T
 * @param {AsyncIterable<T>} items
 */
async function all(items) {
  const list = [];
  for await (const item of items) list.push(item);
  return list;
}

/** @param {number} length */
function incompressible(length) {
  let text = '';
  for (let n = 1; text.length < length; n = (n * 48271) % 2147483647) text += n.toString(36);
  return text.slice(0, length);
}

/** @param {string} run */
async function acquire(run) {
  const put = await fetch(`${url}/-/v1/runs/${run}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '{}' });
  expect(put.ok).toBe(true);
  const answer = await fetch(`${url}/-/v1/runs/${run}/lease`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ owner: 'test', ttl_seconds: 60 }),
  });
  expect(answer.status).toBe(200);
  return (await answer.json()).fence;
}

/** recorder is a fetch that keeps what was sent, and can fail before it is sent or after. */
function recorder() {
  const never = (/** @type {Sent} */ _) => false;
  const it = {
    requests: /** @type {Sent[]} */ ([]),
    deny: never,
    loseAnswer: never,
    /** @type {typeof globalThis.fetch} */
    fetch: async (target, init) => {
      const text = String(init?.body ?? '');
      const request = { method: init?.method ?? 'GET', path: String(target), headers: new Headers(init?.headers), body: text && JSON.parse(text), text };
      it.requests.push(request);
      if (it.deny(request)) throw new TypeError('the process died here');
      const answer = await fetch(target, init);
      if (!it.loseAnswer(request)) return answer;
      await answer.arrayBuffer();
      throw new TypeError('the answer was lost');
    },
  };
  return it;
}
