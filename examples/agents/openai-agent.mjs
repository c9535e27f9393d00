// An agent made with the OpenAI Agents SDK. It knows nothing of Counterfoil: it
// gives no call an id and keeps no state. Its model is asked by Responses, as a
// stream.
import { Agent, run, setTracingDisabled, tool } from '@openai/agents';
import { tools } from './tools.mjs';

const [task] = process.argv.slice(2);

setTracingDisabled(true);
console.log(`agent ${process.pid} begins`);
const agent = new Agent({
  name: 'Support',
  model: 'gpt-test',
  instructions: 'You settle complaints.',
  tools: tools.map((t) => tool({ name: t.name, description: t.description, parameters: t.schema, execute: (args) => t.do(args) })),
});
const stream = await run(agent, task, { stream: true });
await stream.completed;
console.log(`done: ${stream.finalOutput}`);
