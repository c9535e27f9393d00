// Tells the story: a sidecar dies by kill -9 between effect and receipt, and the
// agent, started again, finds its ticket instead of making a second one.
//
//   node run.mjs [path of the sidecar's binary]
import { deepStrictEqual, notStrictEqual, ok, strictEqual } from 'node:assert';
import { buildSidecar, freePort, play, startSidecar, within } from '../stage.mjs';

const run = 'ticket-77';
const meanings = {
  recovered: 'The sidecar asked the desk by key, found the effect, and sent nothing.',
  executed: 'Sent now, for the first time.',
  replayed: 'Answered from the receipt. Nothing was sent.',
};

async function story(stage) {
  const binary = buildSidecar(stage, process.argv[2]);

  let holding;
  const held = new Promise((yes) => (holding = yes));
  const provider = stage.node('the help desk', new URL('provider.mjs', import.meta.url), ['--hold'], {
    onLine: (line) => line.startsWith('holding') && holding(),
  });
  const desk = await provider.ready();
  say(`1. A help desk is up at ${desk} (process ${provider.pid}).`);
  say('   It does not deduplicate: two requests would be two tickets.');

  const listen = `127.0.0.1:${await freePort()}`;
  const settings = {
    COUNTERFOIL_UPSTREAMS: `desk=${desk}`,
    COUNTERFOIL_LISTEN: listen,
    COUNTERFOIL_ADMIN_LISTEN: `127.0.0.1:${await freePort()}`,
  };
  const serve = () => startSidecar(stage, binary, new URL('counterfoil.yaml', import.meta.url), settings);
  const startAgent = () => new Agent(stage, `http://${listen}`);
  const sidecar = await serve();
  say(`2. A sidecar is up at http://${listen} (process ${sidecar.pid}).`);

  say('3. The agent starts: create_ticket, send_email, done.');
  const first = startAgent();
  await within(20, held, 'the help desk got no ticket');
  say('   The desk has made the ticket and holds its answer back.');
  say(`   kill -9 ${sidecar.pid}: the sidecar dies after the effect, before the receipt.`);
  await sidecar.kill();
  notStrictEqual(await first.ended, 0, 'the agent should have failed with its sidecar');
  deepStrictEqual(first.answers, []);
  say('   The agent saw a broken connection, and ends too. Was the ticket made? It cannot know.');
  say(`   A new sidecar is up on the same journal (process ${(await serve()).pid}).`);

  say('4. The agent is started again. It begins at the top.');
  const second = await resume(startAgent(), ['recovered', 'executed']);
  say('5. The agent is started once more, as an orchestrator might.');
  const third = await resume(startAgent(), ['replayed', 'replayed']);
  deepStrictEqual(third, second, 'the agent was told something else than before');

  say('6. The ledger of the help desk, every effect there has been:');
  const ledger = await (await fetch(`${desk}/ledger`)).json();
  for (const { id, key } of ledger) say(`   ${id.padEnd(9)} key ${key}`);
  deepStrictEqual(ledger.map((e) => e.kind), ['ticket', 'mail'], 'the ledger is not one ticket and one mail');
  deepStrictEqual(second, ledger, 'the agent was told something else than what is in the ledger');
  say('\nOne ticket, one mail: at most one effect per call, through a kill -9.');
}

// An Agent is one life of the agent, and what it was answered.
class Agent {
  answers = [];
  #part;

  constructor(stage, sidecar) {
    this.#part = stage.node('the agent', new URL('agent.mjs', import.meta.url), [sidecar, run], {
      onLine: (line) => this.answers.push(JSON.parse(line)),
    });
  }

  get ended() {
    return within(40, this.#part.ended, 'the agent did not end');
  }

  get lastWords() {
    return this.#part.stderr.trim();
  }
}

// resume lets an agent do its work, checks how each call was answered, and
// returns the bodies.
async function resume(agent, outcomes) {
  strictEqual(await agent.ended, 0, `the agent failed: ${agent.lastWords}`);
  for (const { call, outcome, body } of agent.answers) {
    say(`   ${call.padEnd(13)} ${outcome.padEnd(9)} ${meanings[outcome] ?? ''}`);
    say(`   ${''.padEnd(13)} ${''.padEnd(9)} ${body}`);
  }
  deepStrictEqual(agent.answers.map((a) => a.outcome), outcomes);
  const bodies = agent.answers.map((a) => JSON.parse(a.body));
  ok(bodies.every((b) => b.id));
  return bodies;
}

function say(text) {
  console.log(text);
}

await play(50, story);
