// Tickets and payments, or rather a ledger as if there were some. They do not
// deduplicate: two requests are two effects. Each effect is printed as a line.
import { serve } from './server.mjs';

let count = 0;
await serve(async ({ method, path, body }) => {
  const kind = method === 'POST' && { tickets: 'ticket', refunds: 'refund' }[path.slice(1)];
  if (kind) return effect(kind, body);
  const closing = method === 'POST' && path.match(/^\/tickets\/([^/]+)\/close$/);
  if (closing) return effect('close', { id: closing[1], ...body });
  return [404, { error: `no ${method} ${path} here` }];
});

function effect(kind, data) {
  const id = `${kind}-${++count}`;
  console.log(JSON.stringify({ kind, id, data }));
  return [201, { id }];
}
