// Stands before stripe-mock and does what that leaves out and Stripe does: it
// keeps the first answer of each idempotency key and gives it again, and it
// keeps a ledger of all that reached it. Each POST that goes on to stripe-mock is
// an effect. Before and after the effect it takes its time, so that a kill can
// fall there.
//
//   node provider.mjs STRIPE_MOCK_URL SEED
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Random } from '../random.mjs';

const [mock, seed] = process.argv.slice(2);
const random = new Random(Number(seed));
const bodyMax = 64 * 1024;
const delayMax = 40; // milliseconds
const posts = []; // {order, key, sha256, status}: every POST, in order of arrival
const effects = []; // {order, key, payment}
const byKey = new Map(); // key → {sha256, answer}; no answer while in flight

const server = createServer(async (request, response) => {
  if (request.method === 'GET' && request.url === '/ledger') {
    return send(response, { status: 200, body: JSON.stringify({ posts, effects }) });
  }
  if (request.method !== 'POST') return send(response, refusal(404, 'invalid_request_error', 'only POST is counted here'));
  const body = await read(request);
  if (body === undefined) return send(response, refusal(400, 'invalid_request_error', 'the body is cut or too long'));
  const post = {
    order: new URLSearchParams(body).get('metadata[order]'),
    key: request.headers['idempotency-key'],
    sha256: createHash('sha256').update(body).digest('hex'),
  };
  posts.push(post);
  console.log(JSON.stringify({ event: 'arrived', order: post.order }));
  const answer = await serve(post, request, body);
  post.status = answer.status;
  send(response, answer);
});

async function serve(post, request, body) {
  const known = byKey.get(post.key);
  if (known && known.sha256 !== post.sha256) return refusal(400, 'idempotency_error', 'this key was used with other parameters');
  if (known?.answer) return { ...known.answer, replayed: true };
  if (known) return refusal(409, 'idempotency_error', 'this key is in use by a request in flight', 'idempotency_key_in_use');
  const entry = { sha256: post.sha256 };
  byKey.set(post.key, entry);
  await sleep(random.upTo(delayMax));
  const answer = await forward(request, body);
  if (answer.status < 300) {
    effects.push({ order: post.order, key: post.key, payment: JSON.parse(answer.body) });
    console.log(JSON.stringify({ event: 'charged', order: post.order }));
  }
  await sleep(random.upTo(delayMax));
  entry.answer = answer;
  return answer;
}

async function forward(request, body) {
  const headers = { authorization: request.headers.authorization, 'content-type': request.headers['content-type'] };
  const answer = await fetch(mock + request.url, { method: 'POST', headers, body });
  return { status: answer.status, body: await answer.text() };
}

function refusal(status, type, message, code) {
  return { status, body: JSON.stringify({ error: { type, message, code } }) };
}

function send(response, { status, body, replayed }) {
  const headers = { 'Content-Type': 'application/json', ...(replayed && { 'Idempotent-Replayed': 'true' }) };
  response.writeHead(status, headers).end(body);
}

// read returns undefined if the request breaks off or is too long.
async function read(request) {
  let text = '';
  try {
    for await (const chunk of request.setEncoding('utf8')) {
      text += chunk;
      if (text.length > bodyMax) return undefined;
    }
    return text;
  } catch {
    return undefined;
  }
}

server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
