// Asks stand-ins of OpenAI and Anthropic by their own SDKs, directly and through
// a sidecar, which is then killed and started again.
//
//   npm ci --ignore-scripts && node run.mjs [--sidecar PATH]
import { deepStrictEqual, match, ok, strictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { buildSidecar, freePort, goRun, play, startSidecar } from '../stage.mjs';

const { values } = parseArgs({ options: { sidecar: { type: 'string' } } });
const run = 'ticket-77';
const kinds = 6; // three APIs, whole and streamed

async function check(stage) {
  const binary = buildSidecar(stage, values.sidecar);
  const asked = [];
  const model = await startModel(stage, asked);
  const listen = `127.0.0.1:${await freePort()}`;
  const serve = () => startSidecar(stage, binary, new URL('counterfoil.yaml', import.meta.url), {
    COUNTERFOIL_UPSTREAMS: `openai=${model},anthropic=${model}`,
    COUNTERFOIL_LISTEN: listen,
    COUNTERFOIL_ADMIN_LISTEN: `127.0.0.1:${port}`,
  });
  const port = await freePort();
  let sidecar = await serve();
  const direct = (...tasks) => ask(stage, model, model, tasks);
  const through = (...tasks) => ask(stage, `http://${listen}/@${run}/openai`, `http://${listen}/@${run}/anthropic`, tasks);
  const restart = async () => (await sidecar.kill(), (sidecar = await serve()));
  for (const name of ['openai', '@anthropic-ai/sdk']) say(`${name} ${versionOf(name)}`);

  await sameAsDirect();
  await faults('cut', () => true);
  await faults('short', ({ stream }) => stream);
  await overloaded();
  await unavailable();
  strictEqual((await api(`http://${listen}`, `/runs/${run}`)).state, 'active', 'the run is not paused');

  // What the SDK gives is what it gives without a sidecar, and after a restart it
  // is given again, byte for byte, without a question to the model.
  async function sameAsDirect() {
    const plain = await direct('hello');
    const first = await through('hello');
    deepStrictEqual(first.map(anyAnswer), plain.map(anyAnswer));
    strictEqual(asked.length, 2 * kinds);
    await restart();
    const again = await through('hello');
    strictEqual(asked.length, 2 * kinds, 'the model was asked again');
    for (const [i, was] of first.entries()) {
      strictEqual(was.outcome, 'executed');
      deepStrictEqual({ ...again[i], outcome: 'executed' }, was);
      strictEqual(again[i].outcome, 'replayed');
      strictEqual(was.ids.length, 2);
      const record = await recordOf(was);
      deepStrictEqual(record.receipt.usage, usageOf(was));
      const { calls } = await api(`http://${listen}`, `/runs/${run}/turns/${encodeURIComponent(turnOf(was))}`);
      deepStrictEqual(calls.map((c) => c.id), was.ids);
      say(`${nameOf(was)}: ${was.events.length} events as without a sidecar; after kill -9 the same ${was.ids.join(' and ')}, by the same bytes`);
    }
    say(`${kinds} questions in ${first.length} conversations, each asked once\n`);
  }

  // A broken answer is an error to the SDK and no receipt: asking again asks the
  // model.
  async function faults(kind, breaks) {
    const task = `${kind} it`;
    for (const line of await through(task)) {
      if (!breaks(line)) continue;
      const { state } = await recordOf(line);
      if (line.error) ok(!['succeeded', 'rejected'].includes(state), `${nameOf(line)}, ${kind}: ${state}`);
      else ok(!line.stream, `${nameOf(line)}, ${kind}: the SDK got a stream that ends well`);
      say(`${nameOf(line)}, ${kind}: ${line.error ?? 'asked again within the request'}`);
    }
    await restart();
    for (const line of await through(task)) strictEqual(line.ids?.length, 2, `${nameOf(line)}, ${kind}, asked again: ${line.error}`);
    const questions = asked.filter((q) => q.task === task).length;
    strictEqual(questions, kinds + kindsOf(breaks), `${kind}: each broken answer was asked for once more`);
    await through(task);
    strictEqual(asked.filter((q) => q.task === task).length, questions, `${kind}: all is kept`);
  }

  async function overloaded() {
    for (const line of await through('overloaded')) {
      if (line.stream) match(line.error, /overloaded/i, nameOf(line));
    }
    for (const line of await through('overloaded')) strictEqual(line.ids?.length, 2, line.error);
    say('an error event in a stream reaches the SDK as its error, and is not kept');
  }

  // A 500 is asked again by the sidecar, within the request.
  async function unavailable() {
    for (const line of await through('unavailable')) strictEqual(line.ids?.length, 2, `${nameOf(line)}: ${line.error}`);
    say('a 500 is asked again within the request');
  }

  function recordOf(line) {
    return api(`http://${listen}`, `/runs/${run}/turns/${encodeURIComponent(turnOf(line))}/calls/ask`);
  }
}

const kindsOf = (breaks) => [true, false].filter((stream) => breaks({ stream })).length * (kinds / 2);
const turnOf = ({ task, api, stream }) => `${task}/${api}/${stream}`;
const nameOf = ({ api, stream }) => `${api}, ${stream ? 'streamed' : 'whole'}`;

// The stand-in says the same in each API; Anthropic's has no word for thinking.
function usageOf({ api }) {
  return { input: 20, output: 9, cached_input: 4, ...(api === 'messages' ? {} : { reasoning: 2 }) };
}

// anyAnswer leaves out what differs from one answer to the next.
function anyAnswer({ api, stream, events, ids, status }) {
  const text = JSON.stringify({ events, ids }).replace(/(chatcmpl-|resp_|msg_|call_|toolu_|fc_|mood )\d+/g, '$1N');
  return { api, stream, status, ...JSON.parse(text) };
}

async function api(url, path) {
  const answer = await fetch(`${url}/-/v1${path}`);
  const text = await answer.text();
  strictEqual(answer.status, 200, `${path}: ${text}`);
  return JSON.parse(text);
}

async function startModel(stage, asked) {
  const binary = join(stage.dir, 'model');
  goRun(['build', '-o', binary, './examples/models/model'], process.env);
  return stage.start('the model', binary, [], { onLine: (line) => line.startsWith('{') && asked.push(JSON.parse(line)) }).ready();
}

async function ask(stage, openai, anthropic, tasks) {
  const lines = [];
  const client = stage.node('the client', new URL('client.mjs', import.meta.url), [openai, anthropic, ...tasks], {
    onLine: (line) => lines.push(JSON.parse(line)),
  });
  strictEqual(await client.ended, 0, client.stderr);
  return lines;
}

function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), 'utf8')).version;
}

function say(text) {
  console.log(text);
}

await play(80, check);
