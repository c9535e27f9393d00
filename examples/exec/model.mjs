// A model that says something else each time it is asked: other words, other
// ids of its tool calls. What it wants done depends on what was done already. It
// prints each question as a line: which run, and at which step.
import { randomBytes } from 'node:crypto';
import { serve } from './server.mjs';

// Two refunds that are alike, as a customer may get for two cups.
const plan = [
  ({ run }) => [['open_ticket', { title: `Broken cups, ${run}` }]],
  () => [['refund', { order: 'cups', cents: 500 }], ['refund', { order: 'cups', cents: 500 }]],
  ({ results }) => [['close_ticket', { id: results[0].id, refunds: results.slice(1).map((r) => r.id) }]],
];

await serve(async ({ method, path, body }) => {
  if (method !== 'POST' || path !== '/v1/chat/completions') return [404, { error: `no ${method} ${path} here` }];
  const run = body.messages.find((m) => m.role === 'user').content;
  const step = body.messages.filter((m) => m.role === 'assistant').length;
  const results = body.messages.filter((m) => m.role === 'tool').map((m) => JSON.parse(m.content));
  console.log(JSON.stringify({ run, kind: 'asked', step }));
  return [200, { id: random('chatcmpl'), choices: [{ index: 0, message: message(plan[step]?.({ run, results })) }] }];
});

function message(calls) {
  if (!calls) return { role: 'assistant', content: `All settled (${random('mood')}).` };
  return {
    role: 'assistant',
    content: `Let me see (${random('mood')}).`,
    tool_calls: calls.map(([name, args]) => ({ id: random('call'), type: 'function', function: { name, arguments: JSON.stringify(args) } })),
  };
}

function random(prefix) {
  return `${prefix}_${randomBytes(6).toString('hex')}`;
}
