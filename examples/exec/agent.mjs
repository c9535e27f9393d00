// A support agent as anyone would write it: it asks a model what to do, and does
// it, until the model is done. It gives no call an id, keeps no state, and knows
// nothing of Counterfoil. Where things are stands in its environment.
const { OPENAI_BASE_URL, TICKETS_URL, PAYMENTS_URL } = process.env;
const [task] = process.argv.slice(2);

const tools = {
  open_ticket: (args) => post(`${TICKETS_URL}/tickets`, args),
  refund: (args) => post(`${PAYMENTS_URL}/refunds`, args),
  close_ticket: ({ id, ...args }) => post(`${TICKETS_URL}/tickets/${id}/close`, args),
};

async function post(url, body) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

console.log(`agent ${process.pid} begins`);
const messages = [
  { role: 'system', content: 'You are a support agent.' },
  { role: 'user', content: task },
];
for (;;) {
  const { choices } = await post(`${OPENAI_BASE_URL}/chat/completions`, {
    model: 'gpt-test',
    messages,
    tools: Object.keys(tools).map((name) => ({ type: 'function', function: { name } })),
  });
  const { message } = choices[0];
  messages.push(message);
  if (!message.tool_calls) {
    console.log(`done: ${message.content}`);
    break;
  }
  for (const { id, function: call } of message.tool_calls) {
    const result = await tools[call.name](JSON.parse(call.arguments));
    messages.push({ role: 'tool', tool_call_id: id, content: JSON.stringify(result) });
  }
}
