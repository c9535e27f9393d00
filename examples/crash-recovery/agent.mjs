// An agent with a fixed plan: create_ticket, send_email, done. It knows nothing
// of Counterfoil but a base URL, and keeps no state: when it is started again,
// it begins at the top.
const [sidecar, run] = process.argv.slice(2);

// The identity of a call stands in the base URL: /@run:turn:call/upstream
const base = (call) => `${sidecar}/@${run}:1:${call}/desk`;

async function callTool(call, path, args) {
  const answer = await fetch(base(call) + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(args),
  });
  const body = await answer.text();
  if (!answer.ok) throw new Error(`${call}: ${answer.status} ${body}`);
  // An agent needs only the body. The rest is for the story.
  console.log(JSON.stringify({ call, outcome: answer.headers.get('Counterfoil-Outcome'), body }));
}

await callTool('create_ticket', '/tickets', { title: 'Printer on fire', customer: 'ada@example.com' });
await callTool('send_email', '/mails', { to: 'ada@example.com', subject: 'We are on it' });
