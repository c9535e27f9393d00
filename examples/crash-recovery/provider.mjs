// A help desk that makes tickets and sends mail, or rather keeps a ledger as if
// it did. It does not deduplicate: two requests are two effects, whatever their
// key. It can be asked for an effect by key. With --hold it never answers its
// first effect, which is where crashes hurt.
import { createServer } from 'node:http';

const bodyMax = 64 * 1024;
const kinds = { '/tickets': 'ticket', '/mails': 'mail' };
const ledger = [];
let hold = process.argv.includes('--hold');

const server = createServer(async (request, response) => {
  const kind = request.method === 'POST' && kinds[request.url];
  if (kind) return makeEffect(kind, request, response);
  if (request.method === 'GET' && request.url.startsWith('/effects/')) return find(request.url.slice('/effects/'.length), response);
  if (request.method === 'GET' && request.url === '/ledger') return answer(response, 200, ledger);
  answer(response, 404, { error: 'POST /tickets, POST /mails, GET /effects/{key} and GET /ledger are all there is' });
});

async function makeEffect(kind, request, response) {
  const data = await readJSON(request);
  if (data === undefined) return answer(response, 400, { error: 'the body must be JSON of at most 64 KiB' });
  const effect = { id: `${kind}-${ledger.length + 1}`, kind, key: request.headers['idempotency-key'], data };
  ledger.push(effect);
  if (hold) {
    hold = false;
    console.log(`holding ${effect.id}`);
    return;
  }
  answer(response, 201, effect);
}

function find(key, response) {
  const effect = ledger.find((e) => e.key === key);
  if (effect) answer(response, 200, effect);
  else answer(response, 404, { error: 'no effect under that key' });
}

async function readJSON(request) {
  let text = '';
  try {
    for await (const chunk of request.setEncoding('utf8')) {
      text += chunk;
      if (text.length > bodyMax) return undefined;
    }
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function answer(response, status, body) {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
