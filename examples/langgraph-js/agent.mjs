// A graph that writes a report: plan, two researchers at once, then a writer.
// It says on standard output which steps it runs, and its state at the end.
//
//   COUNTERFOIL_URL=http://127.0.0.1:8100 node agent.mjs THREAD [--hold STEP]
//
// Started again with the same thread it goes on where it was. --hold makes a
// step wait for ever, to be killed there.
import { Annotation, END, START, StateGraph } from '@langchain/langgraph';
import { CounterfoilSaver } from './index.mjs';

const [thread, , hold] = process.argv.slice(2);
// What sidecar exec sets: with a fence, an agent that was taken for dead cannot write.
const { COUNTERFOIL_URL = 'http://127.0.0.1:8100', COUNTERFOIL_RUN: run, COUNTERFOIL_FENCE: fence } = process.env;

const saver = new CounterfoilSaver({
  url: COUNTERFOIL_URL,
  user: 'alice',
  ...(run && fence && { run, fence: Number(fence) }),
});

/** @param {string} name */
const step = (name) => async () => {
  console.log(`ran ${name}`);
  if (name === hold) await new Promise(() => setInterval(() => {}, 60_000)); // until it is killed
  return { report: [name] };
};

const State = Annotation.Root({
  report: Annotation({ reducer: (/** @type {string[]} */ a, /** @type {string[]} */ b) => [...a, ...b], default: () => /** @type {string[]} */ ([]) }),
});

const graph = new StateGraph(State)
  .addNode('plan', step('plan'))
  .addNode('history', step('history'))
  .addNode('market', step('market'))
  .addNode('write', step('write'))
  .addEdge(START, 'plan')
  .addEdge('plan', 'history')
  .addEdge('plan', 'market')
  .addEdge(['history', 'market'], 'write')
  .addEdge('write', END)
  .compile({ checkpointer: saver });

const config = { configurable: { thread_id: thread }, durability: /** @type {const} */ ('sync') };
const begun = (await graph.getState(config)).config.configurable?.checkpoint_id !== undefined;
const { report } = await graph.invoke(begun ? null : { report: [] }, config); // null: go on
console.log(`report ${report.join(' ')}`);
