// Checks the saver against a sidecar: its types, the public suite whole, its own
// tests, and a graph that is killed in the middle of a step, sidecar and all.
//
//   npm ci --ignore-scripts && node run.mjs [path of the sidecar's binary]
import { deepStrictEqual, ok, strictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { buildSidecar, freePort, play, startSidecar, within } from '../stage.mjs';
import { CounterfoilSaver } from './index.mjs';

const suiteTests = 718; // what @langchain/langgraph-checkpoint-validation 1.1.1 has
// LangChain's core wants the global crypto that Node 18 has behind a flag.
const nodeFlags = globalThis.crypto ? {} : { NODE_OPTIONS: '--experimental-global-webcrypto' };

async function check(stage) {
  const binary = buildSidecar(stage, process.argv[2]);
  const listen = `127.0.0.1:${await freePort()}`;
  const url = `http://${listen}`;
  const settings = { COUNTERFOIL_LISTEN: listen, COUNTERFOIL_ADMIN_LISTEN: `127.0.0.1:${await freePort()}` };
  const serve = () => startSidecar(stage, binary, new URL('counterfoil.yaml', import.meta.url), settings);
  const sidecar = await serve();

  await tool(stage, 'typescript/bin/tsc', ['-p', fileURLToPath(new URL('.', import.meta.url))]);
  await suites(stage, url);
  await story(stage, url, async () => (await sidecar.kill(), serve()));
}

async function suites(stage, url) {
  const report = join(stage.dir, 'vitest.json');
  const root = fileURLToPath(new URL('.', import.meta.url));
  await tool(stage, 'vitest/vitest.mjs', ['run', '--root', root, '--reporter', 'default', '--reporter', 'json', '--outputFile.json', report], { COUNTERFOIL_TEST_URL: url });

  const counts = new Map();
  for (const { name, assertionResults } of JSON.parse(readFileSync(report, 'utf8')).testResults) {
    const count = { passed: 0, failed: 0, skipped: 0 };
    for (const { status } of assertionResults) count[status === 'passed' || status === 'failed' ? status : 'skipped']++;
    counts.set(name.split('/').at(-1), count);
  }
  const say = (what, file) => {
    const { passed, failed, skipped } = counts.get(file);
    console.log(`${what}: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  };
  say('@langchain/langgraph-checkpoint-validation 1.1.1', 'validation.test.mjs');
  say('its tests of delta channels', 'delta.test.mjs');
  say('graphs beside LangGraph\'s own saver', 'graph.test.mjs');
  say('the saver\'s own tests', 'saver.test.mjs');
  strictEqual(counts.size, 4);
  for (const [file, { passed, failed, skipped }] of counts) ok(passed > 0 && failed + skipped === 0, `${file}: not all passed`);
  strictEqual(counts.get('validation.test.mjs').passed, suiteTests, 'the public suite is not whole');
}

// story kills the agent in a step beside one that is done, and then the sidecar.
async function story(stage, url, restart) {
  const config = { configurable: { thread_id: 'report-1', checkpoint_ns: '' } };
  const saver = new CounterfoilSaver({ url, user: 'alice' });
  const writes = async () => (await saver.getTuple(config))?.pendingWrites?.filter(([, channel]) => channel === 'report') ?? [];

  const first = agent(stage, url, ['--hold', 'market']);
  await until(async () => first.lines.includes('ran market') && (await writes()).length > 0, 'the agent did not get to its researchers');
  await first.part.kill();
  deepStrictEqual([...first.lines].sort(), ['ran history', 'ran market', 'ran plan']);
  console.log('the agent was killed in the step "market"; "history", beside it, is done');
  await restart();
  console.log('the sidecar was killed too, and another is up on what it kept');

  const second = agent(stage, url, []);
  strictEqual(await within(20, second.part.ended, 'the agent did not end'), 0, second.part.stderr);
  deepStrictEqual(second.lines, ['ran market', 'ran write', 'report plan history market write']);
  console.log('the agent, started again, ran "market" and "write" and nothing else');

  const third = agent(stage, url, []);
  strictEqual(await within(20, third.part.ended, 'the agent did not end'), 0, third.part.stderr);
  deepStrictEqual(third.lines, ['report plan history market write']);
  console.log('started once more it ran nothing: the report is written');
}

function agent(stage, url, args) {
  const lines = [];
  const part = stage.node('the agent', new URL('agent.mjs', import.meta.url), ['report-1', ...args], {
    env: { COUNTERFOIL_URL: url, ...nodeFlags },
    onLine: (line) => lines.push(line),
  });
  return { part, lines };
}

// tool runs a program of node_modules, and fails with what it said.
async function tool(stage, script, args, env = {}) {
  const lines = [];
  const part = stage.node(script, new URL(`node_modules/${script}`, import.meta.url), args, {
    env: { NO_COLOR: '1', ...env, ...nodeFlags },
    onLine: (line) => lines.length < 200 && lines.push(line.slice(0, 300)),
  });
  if ((await part.ended) !== 0) throw new Error(`${script}:\n${lines.join('\n')}\n${part.stderr}`);
}

async function until(holds, text) {
  const end = Date.now() + 20_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`${text} within 20 s`);
    await delay(20);
  }
}

await play(180, check);
