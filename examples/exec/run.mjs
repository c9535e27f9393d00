// Tells the story: an agent that knows nothing of Counterfoil is killed at random
// moments, twenty times, and started again by sidecar exec. Each of its tools has
// its effect once, and the model is asked each question once.
//
//   node run.mjs [--sidecar PATH] [--kills N] [--seed N]
import { deepStrictEqual, match, strictEqual } from 'node:assert';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../random.mjs';
import { buildSidecar, play } from '../stage.mjs';

const { values } = parseArgs({
  options: { sidecar: { type: 'string' }, kills: { type: 'string', default: '20' }, seed: { type: 'string' } },
});
const kills = Number(values.kills);
const seed = Number(values.seed ?? Date.now() % 2 ** 31);
const random = new Random(seed);

async function story(stage) {
  const binary = buildSidecar(stage, values.sidecar);
  const here = (file) => new URL(file, import.meta.url);
  const asked = [];
  const ledger = [];
  const note = (list) => ({ onLine: (line) => line.startsWith('{') && list.push(JSON.parse(line)) });
  const model = await stage.node('the model', here('model.mjs'), [], note(asked)).ready();
  const tickets = await stage.node('the tickets', here('tools.mjs'), [], note(ledger)).ready();
  const payments = await stage.node('the payments', here('tools.mjs'), [], note(ledger)).ready();
  say(`A model is at ${model}, tickets at ${tickets}, payments at ${payments}.`);
  say(`Seed ${seed}: --seed ${seed} draws the same moments again.\n`);

  // exec runs the agent for one task. whenUp is called with the process id of
  // each life of the agent, whenDone when it is done.
  const exec = async (run, whenUp, whenDone = () => {}) => {
    const said = [];
    const part = stage.start('sidecar exec', binary, [
      'exec', '--run', run, '--restart', `on-failure:${kills}`, '--restart-delay', '0s', '--env', 'TICKETS_URL=tickets', '--env', 'PAYMENTS_URL=payments',
      '--', process.execPath, fileURLToPath(here('agent.mjs')), run,
    ], {
      env: {
        COUNTERFOIL_CONFIG: fileURLToPath(here('counterfoil.yaml')),
        COUNTERFOIL_UPSTREAMS: `openai=${model},tickets=${tickets},payments=${payments}`,
        COUNTERFOIL_DATA: join(stage.dir, 'journal'),
        COUNTERFOIL_LOG_LEVEL: 'error',
      },
      onLine: (line) => {
        said.push(line);
        const pid = line.match(/^agent (\d+) begins$/);
        if (pid) whenUp(Number(pid[1]));
        if (line.startsWith('done')) whenDone();
      },
    });
    strictEqual(await part.ended, 0, `sidecar exec failed: ${part.stderr}`);
    return said;
  };

  let whole;
  await exec('undisturbed', () => (whole = -Date.now()), () => (whole += Date.now()));
  checkRun('undisturbed', 1);
  say(`Undisturbed the agent takes ${whole} ms from its first line to its last.`);

  let killed = 0;
  const runs = ['undisturbed'];
  while (killed < kills) {
    const run = `order-${runs.length}`;
    runs.push(run);
    let lives = 0;
    let timer;
    const said = await exec(run, (pid) => {
      clearTimeout(timer); // whom it was meant for has ended
      lives++;
      // What was done before is quick to repeat: half the time leads to all steps.
      if (killed + lives <= kills) timer = setTimeout(kill, random.upTo(whole / 2), pid);
    });
    clearTimeout(timer);
    match(said.at(-1), /^done: All settled/);
    checkRun(run);
    killed += lives - 1;
    say(`${run.padEnd(8)} killed ${lives - 1} times, then ${said.at(-1)}`);
  }

  say(`\n${killed} kills, ${runs.length} runs: ${ledger.length} effects, ${asked.length} questions to the model.`);
  strictEqual(ledger.length, runs.length * 4);
  strictEqual(asked.length, runs.length * 4);
  say('One ticket, two refunds and one closing per run; each question asked once.');

  function checkRun(run) {
    deepStrictEqual(asked.filter((q) => q.run === run).map((q) => q.step), [0, 1, 2, 3], `the questions of ${run}`);
    const effects = ledger.slice(-4);
    deepStrictEqual(effects.map((e) => e.kind), ['ticket', 'refund', 'refund', 'close'], `the effects of ${run}`);
    const [ticket, first, second, close] = effects;
    strictEqual(ticket.data.title, `Broken cups, ${run}`);
    deepStrictEqual(close.data, { id: ticket.id, refunds: [first.id, second.id] });
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

function say(text) {
  console.log(text);
}

await play(80, story);
