// What both agents can do, over HTTP. Each takes a moment of its own to begin, so
// that two at once begin in either order.
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';

const { TICKETS_URL, PAYMENTS_URL } = process.env;

// A tool's do gets its arguments and the fields that its request is to bear.
export const tools = [
  {
    name: 'open_ticket',
    description: 'Opens a ticket.',
    schema: z.object({ title: z.string() }),
    do: (args, headers) => post(`${TICKETS_URL}/tickets`, args, headers),
  },
  {
    name: 'refund',
    description: 'Pays money back.',
    schema: z.object({ order: z.string(), cents: z.number() }),
    do: (args, headers) => post(`${PAYMENTS_URL}/refunds`, args, headers),
  },
  {
    name: 'close_ticket',
    description: 'Closes a ticket.',
    schema: z.object({ id: z.string(), refunds: z.array(z.string()) }),
    do: ({ id, ...args }, headers) => post(`${TICKETS_URL}/tickets/${id}/close`, args, headers),
  },
];

async function post(url, body, headers = {}) {
  await pause(Math.random() * 10);
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  // A tool that failed is no news for a model: the agent ends, and is started again.
  if (!answer.ok) fail(`${url}: ${answer.status} ${text}`);
  return text;
}

// fail ends the agent. What frameworks make of a tool's error is a word to the
// model, which would then change its plan.
function fail(text) {
  console.error(text);
  process.exit(1);
}
