// Two agents, one made with the OpenAI Agents SDK and one with LangGraph, are
// killed at random moments and started again by sidecar exec. Their model is
// asked each question once, and each tool call has its effect once.
//
//   npm ci --ignore-scripts && node run.mjs [--sidecar PATH] [--kills N] [--seed N]
import { deepStrictEqual, match, strictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../random.mjs';
import { buildSidecar, goRun, play } from '../stage.mjs';

const { values } = parseArgs({
  options: { sidecar: { type: 'string' }, kills: { type: 'string', default: '10' }, seed: { type: 'string' } },
});
const kills = Number(values.kills); // of each agent
const seed = Number(values.seed ?? Date.now() % 2 ** 31);
const random = new Random(seed);
const here = (file) => new URL(file, import.meta.url);

async function story(stage) {
  const binary = buildSidecar(stage, values.sidecar);
  const note = (list) => ({ onLine: (line) => line.startsWith('{') && list.push(JSON.parse(line)) });
  const asked = [];
  const ledger = [];
  const modelBinary = join(stage.dir, 'model');
  goRun(['build', '-o', modelBinary, './examples/agents/model'], process.env);
  const model = await stage.start('the model', modelBinary, [], note(asked)).ready();
  const tickets = await stage.node('the tickets', new URL('../exec/tools.mjs', import.meta.url), [], note(ledger)).ready();
  const payments = await stage.node('the payments', new URL('../exec/tools.mjs', import.meta.url), [], note(ledger)).ready();
  say(`Seed ${seed}: --seed ${seed} draws the same moments again.`);

  for (const [agent, ...packages] of [
    ['openai-agent', '@openai/agents'],
    ['langgraph-agent', '@langchain/langgraph', '@langchain/openai'],
  ]) {
    say(`\n${packages.map((name) => `${name} ${versionOf(name)}`).join(' and ')}`);
    await killed(agent);
  }

  // killed runs an agent once undisturbed, to see how long it takes, and then
  // until it was killed often enough.
  async function killed(agent) {
    let begun = 0;
    let whole = 0;
    await exec(agent, `${agent}-0`, () => (begun = performance.now()), () => (whole = performance.now() - begun));
    say(`undisturbed it takes ${Math.round(whole)} ms`);
    let done = 0;
    for (let n = 1; done < kills; n++) {
      const run = `${agent}-${n}`;
      let lives = 0;
      let timer;
      await exec(agent, run, (pid) => {
        clearTimeout(timer); // whom it was meant for has ended
        lives++;
        if (done + lives <= kills) timer = setTimeout(kill, whole * 0.1 + random.upTo(whole * 0.7), pid);
      });
      clearTimeout(timer);
      done += lives - 1;
      say(`${run}: killed ${lives - 1} times`);
    }
    say(`${done} kills: each question was asked once, each tool call had its effect once`);
  }

  // exec runs an agent for one task, and checks what came of it.
  async function exec(agent, run, whenUp, whenDone = () => {}) {
    const before = ledger.length;
    const said = [];
    const part = stage.start('sidecar exec', binary, [
      'exec', '--run', run, '--restart', `on-failure:${kills + 1}`, '--restart-delay', '0s', '--env', 'TICKETS_URL=tickets', '--env', 'PAYMENTS_URL=payments',
      '--', process.execPath, fileURLToPath(here(`${agent}.mjs`)), run,
    ], {
      env: {
        COUNTERFOIL_CONFIG: fileURLToPath(here('counterfoil.yaml')),
        COUNTERFOIL_UPSTREAMS: `openai=${model},tickets=${tickets},payments=${payments}`,
        COUNTERFOIL_DATA: join(stage.dir, 'journal'),
        COUNTERFOIL_LOG_LEVEL: 'error',
        OPENAI_API_KEY: 'sk-none',
      },
      onLine: (line) => {
        said.push(line);
        const pid = line.match(/^agent (\d+) begins$/);
        if (pid) whenUp(Number(pid[1]));
        if (line.startsWith('done')) whenDone();
      },
    });
    strictEqual(await part.ended, 0, `${run}: ${said.join('\n')}\n${part.stderr}`);
    match(said.at(-1), /^done: All settled/);
    checkRun(run, ledger.slice(before));
  }

  function checkRun(run, effects) {
    deepStrictEqual(asked.filter((q) => q.task === run).map((q) => q.step), [0, 1, 2, 3], `the questions of ${run}`);
    deepStrictEqual(effects.map((e) => e.kind), ['ticket', 'refund', 'refund', 'close'], `the effects of ${run}`);
    const [ticket, first, second, close] = effects;
    strictEqual(ticket.data.title, `Broken: ${run}`);
    const [cups, saucers] = first.data.order === 'cups' ? [first, second] : [second, first];
    deepStrictEqual([cups.data, saucers.data], [{ order: 'cups', cents: 500 }, { order: 'saucers', cents: 200 }]);
    deepStrictEqual(close.data, { id: ticket.id, refunds: [cups.id, saucers.id] });
  }
}

// kill is kill -9 of a process that may have ended.
function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

function versionOf(name) {
  return JSON.parse(readFileSync(here(`node_modules/${name}/package.json`), 'utf8')).version;
}

function say(text) {
  console.log(text);
}

await play(170, story);
