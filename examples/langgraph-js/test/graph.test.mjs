// Graphs as people write them leave the same history with this saver as with
// LangGraph's own, which keeps it in memory.
import { Annotation, Command, END, interrupt, MemorySaver, Send, START, StateGraph } from '@langchain/langgraph';
import { newSaver } from './kit.mjs';

/** @typedef {import('@langchain/langgraph-checkpoint').BaseCheckpointSaver} Saver */

const State = Annotation.Root({
  log: Annotation({ reducer: (/** @type {string[]} */ a, /** @type {string[]} */ b) => [...a, ...b], default: () => /** @type {string[]} */ ([]) }),
  n: Annotation({ reducer: (/** @type {number} */ _, /** @type {number} */ next) => next, default: () => 0 }),
});
const config = () => ({ configurable: { thread_id: 'thread' } });

const scenarios = {
  /** @param {Saver} checkpointer */
  async loop(checkpointer) {
    const graph = counter(checkpointer);
    await graph.invoke({ n: 0, log: ['in'] }, config());
    await graph.invoke({ n: 1, log: ['again'] }, config());
    return history(graph);
  },

  /** @param {Saver} checkpointer */
  async fork(checkpointer) {
    const graph = counter(checkpointer);
    await graph.invoke({ n: 0, log: ['in'] }, config());
    const states = await all(graph.getStateHistory(config()));
    const old = states.find((s) => s.values.n === 1);
    const branch = await graph.updateState(old?.config ?? {}, { n: 2, log: ['forked'] });
    const forked = await graph.invoke(null, branch);
    const main = await graph.getState(states[0].config);
    return { forked, main: main.values, history: await history(graph) };
  },

  /** @param {Saver} checkpointer */
  async copy(checkpointer) {
    const graph = counter(checkpointer);
    await graph.invoke({ n: 0, log: ['in'] }, config());
    const old = (await all(graph.getStateHistory(config()))).find((s) => s.values.n === 2);
    const again = await graph.invoke(null, await graph.updateState(old?.config ?? {}, null, '__copy__'));
    return { again, history: await history(graph) };
  },

  /** @param {Saver} checkpointer */
  async interrupts(checkpointer) {
    const graph = new StateGraph(State)
      .addNode('ask', () => ({ log: [`told ${interrupt('may I?')} and ${interrupt('really?')}`] }))
      .addNode('beside', () => ({ log: ['beside'] }))
      .addEdge(START, 'ask').addEdge(START, 'beside').addEdge('ask', END)
      .compile({ checkpointer });
    const asked = await graph.invoke({ log: ['in'] }, config());
    const again = await graph.invoke(new Command({ resume: 'yes' }), config());
    const told = await graph.invoke(new Command({ resume: 'really' }), config());
    return { asked: questions(asked), again: questions(again), told, history: await history(graph) };
  },

  /** @param {Saver} checkpointer */
  async failure(checkpointer) {
    let fails = true;
    const graph = new StateGraph(State)
      .addNode('good', () => ({ log: ['good'] }))
      .addNode('bad', () => {
        if (fails) throw new Error('not yet');
        return { log: ['bad'] };
      })
      .addEdge(START, 'good').addEdge('good', 'bad').addEdge('bad', END)
      .compile({ checkpointer });
    await expect(graph.invoke({ log: ['in'] }, config())).rejects.toThrow('not yet');
    fails = false;
    return { after: await graph.invoke(null, config()), history: await history(graph) };
  },

  /** @param {Saver} checkpointer */
  async 'subgraphs and sends'(checkpointer) {
    const inner = new StateGraph(State)
      .addNode('one', ({ n }) => ({ log: [`one ${n}`] }))
      .addNode('two', ({ n }) => ({ log: [`two ${n} ${interrupt(`go on with ${n}?`)}`] }))
      .addEdge(START, 'one').addEdge('one', 'two').addEdge('two', END)
      .compile();
    const graph = new StateGraph(State)
      .addNode('inner', async (state) => ({ log: (await inner.invoke({ n: state.n, log: [] })).log }))
      .addConditionalEdges(START, () => [1, 2, 3].map((n) => new Send('inner', { n, log: [] })))
      .addEdge('inner', END)
      .compile({ checkpointer });
    const asked = await graph.invoke({ log: ['in'] }, config());
    const { tasks } = await graph.getState(config(), { subgraphs: true });
    const resume = Object.fromEntries(tasks.flatMap((t) => t.interrupts).map((i, at) => [i.id, `answer ${at}`]));
    const told = await graph.invoke(new Command({ resume }), config());
    return { asked: questions(asked).sort(), told, history: await history(graph) };
  },

  /** @param {Saver} checkpointer */
  async 'durability "exit"'(checkpointer) {
    const graph = counter(checkpointer);
    await graph.invoke({ n: 0, log: ['in'] }, { ...config(), durability: 'exit' });
    await graph.invoke(null, { ...config(), durability: 'exit' });
    await graph.invoke({ n: 2, log: ['again'] }, { ...config(), durability: 'exit' });
    return history(graph);
  },
};

describe.each(Object.entries(scenarios))('%s', (_, play) => {
  it('is as in memory', async () => {
    const kept = await play(newSaver());
    expect(kept).toEqual(await play(new MemorySaver()));
    expect(JSON.stringify(kept)).toContain('"in"');
  });
});

/** @param {Saver} checkpointer */
function counter(checkpointer) {
  return new StateGraph(State)
    .addNode('count', ({ n }) => ({ n: n + 1, log: [`counted ${n + 1}`] }))
    .addEdge(START, 'count')
    .addConditionalEdges('count', ({ n }) => (n < 3 ? 'count' : END))
    .compile({ checkpointer });
}

/** @param {any} state */
function questions(state) {
  return state.__interrupt__.map((/** @type {any} */ i) => i.value);
}

/**
 * history is what a graph's snapshots have in common from run to run.
 * @param {{ getStateHistory: (config: any) => AsyncIterable<import('@langchain/langgraph').StateSnapshot> }} graph
 */
async function history(graph) {
  const ids = new Map();
  const place = (/** @type {any} */ c) => {
    const id = c?.configurable?.checkpoint_id;
    if (!ids.has(id)) ids.set(id, ids.size);
    return ids.get(id);
  };
  return (await all(graph.getStateHistory(config()))).map(({ values, next, metadata, config, parentConfig, tasks }) => ({
    values, next, source: metadata?.source, step: metadata?.step, id: place(config), parent: parentConfig && place(parentConfig),
    tasks: tasks.map((t) => ({ name: t.name, error: t.error !== undefined, interrupts: t.interrupts.map((i) => i.value), result: t.result })),
  }));
}

/**
 * @template T
 * @param {AsyncIterable<T>} items
 */
async function all(items) {
  const list = [];
  for await (const item of items) list.push(item);
  return list;
}
