// An agent made with LangGraph and LangChain's ChatOpenAI. Its state is kept by
// the sidecar after each step, and a life goes on where the one before was: a
// step that was not finished begins again, with both of its tools. So its calls
// bear ids: the turn is the number of the model's answer, the call the model's own
// id for it.
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { Annotation, END, START, StateGraph, messagesStateReducer } from '@langchain/langgraph';
import { ChatOpenAI } from '@langchain/openai';
import { CounterfoilSaver } from 'counterfoil-langgraph-saver';
import { tools } from './tools.mjs';

const [task] = process.argv.slice(2);
const { COUNTERFOIL_URL, COUNTERFOIL_RUN, COUNTERFOIL_FENCE } = process.env;

console.log(`agent ${process.pid} begins`);
const model = new ChatOpenAI({ model: 'gpt-test', maxRetries: 0 })
  .bindTools(tools.map((t) => ({ type: 'function', function: { name: t.name, description: t.description, parameters: t.schema.toJSONSchema() } })));

const turnOf = (messages) => String(messages.filter((m) => AIMessage.isInstance(m)).length);
const idOf = (turn, call) => ({ 'Counterfoil-Turn': turn, 'Counterfoil-Call': call });

async function think({ messages }) {
  const turn = String(Number(turnOf(messages)) + 1);
  let whole;
  for await (const piece of await model.stream(messages, { options: { headers: idOf(turn, 'model') } })) whole = whole ? whole.concat(piece) : piece;
  return { messages: [new AIMessage({ content: whole.content, tool_calls: whole.tool_calls })] };
}

async function act({ messages }) {
  const turn = turnOf(messages);
  const results = messages.at(-1).tool_calls.map(async ({ id, name, args }) => {
    const content = await tools.find((t) => t.name === name).do(args, idOf(turn, id));
    return new ToolMessage({ tool_call_id: id, name, content });
  });
  return { messages: await Promise.all(results) };
}

const graph = new StateGraph(Annotation.Root({ messages: Annotation({ reducer: messagesStateReducer, default: () => [] }) }))
  .addNode('think', think)
  .addNode('act', act)
  .addEdge(START, 'think')
  .addConditionalEdges('think', ({ messages }) => (messages.at(-1).tool_calls.length > 0 ? 'act' : END))
  .addEdge('act', 'think')
  .compile({ checkpointer: new CounterfoilSaver({ url: COUNTERFOIL_URL, user: 'support', run: COUNTERFOIL_RUN, fence: Number(COUNTERFOIL_FENCE) }) });

const config = { configurable: { thread_id: task } };
const { values } = await graph.getState(config);
const begun = values.messages?.length > 0;
const { messages } = await graph.invoke(begun ? null : { messages: [new HumanMessage(task)] }, { ...config, durability: 'sync' });
console.log(`done: ${messages.at(-1).content}`);
