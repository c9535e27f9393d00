// One effect by a provider's own SDK, unchanged but for where it sends.
//
//   node effect.mjs SDK ORIGIN CALL
//
// ORIGIN is the sidecar's, or for stripe the upstream's own listener. CALL names
// the call. It prints what the SDK returned or threw, as JSON.
import { LinearClient } from '@linear/sdk';
import { Octokit } from '@octokit/rest';
import { WebClient } from '@slack/web-api';
import Stripe from 'stripe';
import twilio from 'twilio';

const patience = 1500; // milliseconds that an SDK waits for an answer
const [sdk, origin, call] = process.argv.slice(2);
const base = (upstream) => `${origin}/@${call}/${upstream}`;

const effects = {
  // Stripe's SDK takes a host and a port, and no path. The idempotency key,
  // which any careful user sets, is the call's name.
  stripe() {
    const { hostname, port } = new URL(origin);
    const client = new Stripe('sk_test_example', { protocol: 'http', host: hostname, port, timeout: patience, maxNetworkRetries: 2 });
    return client.customers.create({ name: 'Ada', metadata: { order: '7' } }, { idempotencyKey: call });
  },
  async octokit() {
    const client = new Octokit({ auth: 'ghp_example', baseUrl: base('github'), log: { debug() {}, info() {}, warn() {}, error() {} } });
    const signal = AbortSignal.timeout(patience);
    const { data } = await client.issues.create({ owner: 'o', repo: 'r', title: 'Printer on fire', body: 'It burns.', request: { signal } });
    return data;
  },
  // Linear's SDK makes the issue, and then reads it.
  async linear() {
    const client = new LinearClient({ apiKey: 'lin_api_example', apiUrl: `${base('linear')}/graphql`, signal: AbortSignal.timeout(patience) });
    const { success, issue } = await client.createIssue({ teamId: 'team-1', title: 'Printer on fire' });
    const { id, identifier, title } = await issue;
    return { success, id, identifier, title };
  },
  // Slack's SDK posts again on any status but 200.
  slack() {
    const client = new WebClient('xoxb-example', {
      slackApiUrl: `${base('slack')}/api/`,
      timeout: patience,
      retryConfig: { retries: 3, minTimeout: 50, maxTimeout: 200 },
      logger: { debug() {}, info() {}, warn() {}, error() {}, setLevel() {}, getLevel: () => 'error', setName() {} },
    });
    return client.chat.postMessage({ channel: 'C1', text: 'The printer is on fire.' });
  },
  async twilio() {
    const client = twilio('AC00000000000000000000000000000001', 'secret', { timeout: patience });
    client.api.baseUrl = base('twilio');
    const { sid, body, status } = await client.messages.create({ to: '+15550001', from: '+15550002', body: 'The printer is on fire.' });
    return { sid, body, status };
  },
};

try {
  const object = await effects[sdk]();
  console.log(JSON.stringify({ object }));
} catch (error) {
  const status = error.status ?? error.statusCode ?? error.original?.response?.status ?? null;
  console.log(JSON.stringify({ error: { name: error.constructor.name, message: error.message, status } }));
}
process.exit(0);
