// Charges orders with Stripe's SDK while agent and sidecar are killed with
// kill -9 at random moments, and holds what the SDK was told against the
// provider's ledger.
//
//   node run.mjs [--seed N] [--sidecar BINARY] [--stripe-mock BINARY]
import { deepStrictEqual, ok, strictEqual } from 'node:assert';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { buildSidecar, freePort, goRun, play, startSidecar } from '../stage.mjs';
import { Random } from '../random.mjs';

const stripeMockModule = 'github.com/stripe/stripe-mock@v0.203.0';
const batch = 10; // orders that are added when all are charged and more kills are due
const killsMin = 12;
const resentMin = 3; // calls that a kill must have left in doubt
const killDelayMax = 90; // milliseconds after a request reached the provider
const failuresMax = 3; // of the agent in a row, with no kill between

// Chaos runs the agent until it has charged all orders, and kills.
class Chaos {
  orders = batch;
  kills = { agent: 0, sidecar: 0 };
  posts = new Map(); // order → how many POSTs the provider saw
  told = new Map(); // order → the payment that the SDK returned first
  outcomes = {}; // outcome → how often
  restarts = []; // how many POSTs the provider had seen when a sidecar was dead, and the next one not yet there
  #arrival = signal();

  constructor(stage, seed) {
    this.stage = stage;
    this.seed = seed;
    this.random = new Random(seed);
  }

  async open({ sidecar, stripeMock }) {
    this.binary = buildSidecar(this.stage, sidecar);
    const mock = await startStripeMock(this.stage, stripeMock);
    const provider = this.stage.node('the provider', new URL('provider.mjs', import.meta.url), [mock, this.seed], {
      onLine: (line) => line.startsWith('{') && this.#seen(JSON.parse(line)),
    });
    this.provider = await provider.ready();
    this.port = await freePort();
    this.settings = {
      COUNTERFOIL_UPSTREAMS: `stripe=${this.provider}@${this.port}`,
      COUNTERFOIL_LISTEN: `127.0.0.1:${await freePort()}`,
      COUNTERFOIL_ADMIN_LISTEN: `127.0.0.1:${await freePort()}`,
    };
    await this.#startSidecar();
    say(`stripe-mock is at ${mock}, the counting provider before it at ${this.provider}, Stripe's SDK is pointed at 127.0.0.1:${this.port}.`);
  }

  async run() {
    this.#startAgent();
    for (let failures = 0; ; ) {
      this.#arrival = signal();
      const code = await Promise.race([this.#arrival, this.agent.ended]);
      if (code === undefined) {
        await this.#kill();
        failures = 0;
      } else if (code !== 0) {
        ok(++failures <= failuresMax, `the agent fails again and again: ${this.agent.stderr}`);
        this.#startAgent();
      } else if (this.#isEnough()) return;
      else this.#startAgent((this.orders += batch));
    }
  }

  // audit runs the agent once more, which must send nothing, and compares.
  async audit() {
    const before = await this.#ledger();
    this.outcomes = {};
    this.#startAgent();
    strictEqual(await this.agent.ended, 0, `the undisturbed agent failed: ${this.agent.stderr}`);
    deepStrictEqual(this.outcomes, { replayed: this.orders });
    await this.#makeMistakes();
    const ledger = await this.#ledger();
    deepStrictEqual(ledger, before, 'a replay reached the provider');

    let resent = 0;
    for (let n = 1; n <= this.orders; n++) resent += this.#auditOrder(`order-${n}`, ledger);
    strictEqual(ledger.effects.length, this.orders, 'the provider charged something else');
    say(`Once more, undisturbed: ${this.orders} answers replayed, nothing sent.`);
    say('Another charge under a used key, and one without a key: refused, and the SDK throws.');
    say(`${this.orders} orders, ${this.orders} charges, ${ledger.posts.length} POSTs: ${resent} were resends under the same key with the same bytes.`);
    say('Every answer of the SDK is the object that the provider made: one charge per order.');
  }

  async #makeMistakes() {
    const threw = [];
    const agent = this.stage.node('the mistaken agent', new URL('mistakes.mjs', import.meta.url), [this.port], {
      onLine: (line) => threw.push(line),
    });
    strictEqual(await agent.ended, 0, `the mistaken agent failed: ${agent.stderr}`);
    deepStrictEqual(threw, ['threw StripeAPIError 422 key-reused', 'threw StripeInvalidRequestError 400 missing-key']);
  }

  // auditOrder returns how many POSTs of the order were repeats.
  #auditOrder(order, { posts, effects }) {
    const charged = effects.filter((e) => e.order === order);
    strictEqual(charged.length, 1, `${order} was charged ${charged.length} times`);
    deepStrictEqual(this.told.get(order), charged[0].payment, `${order}: the SDK was told something else than the provider did`);
    const sent = posts.flatMap((post, at) => (post.order === order ? { ...post, at } : []));
    for (const [i, post] of sent.entries()) {
      strictEqual(post.key, order, `${order} was sent under another key`);
      strictEqual(post.sha256, sent[0].sha256, `${order} was resent with other bytes`);
      if (i > 0) ok(this.#mayRepeat(sent[i - 1], post), `${order} was sent again by a sidecar that had not died`);
    }
    return sent.length - 1;
  }

  // mayRepeat reports whether a sidecar's death between two POSTs left the call
  // in doubt, or the provider answered the former that it was still at it.
  #mayRepeat(former, latter) {
    return former.status === 409 || this.restarts.some((at) => former.at < at && at <= latter.at);
  }

  async #kill() {
    await sleep(this.random.upTo(killDelayMax));
    const both = { agent: true, sidecar: true };
    const target = this.random.pick([{ agent: true }, { sidecar: true }, { sidecar: true }, both]);
    if (target.agent) {
      this.kills.agent++;
      await this.agent.kill();
    }
    if (target.sidecar) {
      this.kills.sidecar++;
      await this.sidecar.kill();
      this.restarts.push((await this.#ledger()).posts.length);
      await this.#startSidecar();
    }
    if (target.agent) this.#startAgent();
  }

  #isEnough() {
    const resent = [...this.posts.values()].filter((n) => n > 1).length;
    const kills = this.kills.agent + this.kills.sidecar;
    if (kills < killsMin || resent < resentMin) return false;
    say(`${this.kills.agent} kills of the agent and ${this.kills.sidecar} of the sidecar later, all ${this.orders} orders are charged.`);
    say(`What the SDK was answered on the way: ${Object.entries(this.outcomes).map(([k, n]) => `${n} ${k}`).join(', ')}.`);
    return true;
  }

  async #startSidecar() {
    this.sidecar = await startSidecar(this.stage, this.binary, new URL('counterfoil.yaml', import.meta.url), this.settings);
  }

  #startAgent() {
    this.agent = this.stage.node('the agent', new URL('agent.mjs', import.meta.url), [this.port, this.orders], {
      onLine: (line) => this.#answered(JSON.parse(line)),
    });
  }

  // seen notes what reached the provider.
  #seen({ event, order }) {
    if (event !== 'arrived') return;
    this.posts.set(order, (this.posts.get(order) ?? 0) + 1);
    this.#arrival.fire();
  }

  // answered notes what the SDK returned, and that it is always the same.
  #answered({ order, outcome, payment }) {
    this.outcomes[outcome] = (this.outcomes[outcome] ?? 0) + 1;
    if (this.told.has(order)) deepStrictEqual(payment, this.told.get(order), `${order}: the SDK was told something else than before`);
    else this.told.set(order, payment);
  }

  async #ledger() {
    return (await fetch(`${this.provider}/ledger`)).json();
  }
}

// startStripeMock returns the URL of a stripe-mock, which is built if no binary
// is given.
async function startStripeMock(stage, binary) {
  if (!binary) {
    goRun(['install', stripeMockModule], { ...process.env, GOBIN: stage.dir });
    binary = join(stage.dir, 'stripe-mock');
  }
  return new Promise((yes, no) => {
    const mock = stage.start('stripe-mock', resolve(binary), ['-http-addr', '127.0.0.1:', '-https-addr', '127.0.0.1:'], {
      onLine: (line) => {
        const [, address] = line.match(/HTTP at address: (\S+)/) ?? [];
        if (address) yes(`http://${address}`);
      },
    });
    mock.ended.then(() => no(new Error(`stripe-mock ended: ${mock.stderr.trim()}`)));
  });
}

// signal is a promise with a fire method that resolves it.
function signal() {
  let fire;
  const promise = new Promise((yes) => (fire = yes));
  promise.fire = () => fire();
  return promise;
}

function say(text) {
  console.log(text);
}

// readOptions returns what the command line says.
function readOptions() {
  const text = { type: 'string' };
  const { values } = parseArgs({ options: { seed: text, sidecar: text, 'stripe-mock': text } });
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32));
  if (!(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32)) throw new Error('--seed takes a whole number from 0 to 4294967295');
  return { seed, sidecar: values.sidecar, stripeMock: values['stripe-mock'] };
}

await play(85, async (stage) => {
  const options = readOptions();
  if (!existsSync(new URL('node_modules/stripe', import.meta.url))) throw new Error('npm ci in this folder comes first');
  say(`Seed ${options.seed}: node run.mjs --seed ${options.seed} draws the same delays again.`);
  const chaos = new Chaos(stage, options.seed);
  await chaos.open(options);
  await chaos.run();
  await chaos.audit();
});
