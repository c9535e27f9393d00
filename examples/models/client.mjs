// Asks one model by its provider's own SDK, and prints what the SDK gave, one
// line of JSON per question.
//
//   node client.mjs OPENAI_BASE_URL ANTHROPIC_BASE_URL TASK...
import { createHash } from 'node:crypto';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const [openaiURL, anthropicURL, ...tasks] = process.argv.slice(2);

// An Ear hears the bytes of the answer that the SDK reads.
class Ear {
  status = 0;
  outcome = null;
  #hash = createHash('sha256');
  #heard;

  fetch = async (url, init) => {
    const answer = await fetch(url, init);
    this.status = answer.status;
    this.outcome = answer.headers.get('counterfoil-outcome');
    const [mine, theirs] = answer.body.tee();
    this.#heard = this.#listen(mine);
    return new Response(theirs, answer);
  };

  async #listen(body) {
    try {
      for await (const piece of body) this.#hash.update(piece);
      return true;
    } catch {
      return false; // it broke off, which the SDK has to say
    }
  }

  async digest() {
    return (await this.#heard) ? this.#hash.copy().digest('hex') : null;
  }
}

const tools = ['refund', 'mail'];
const parameters = { type: 'object', properties: {} };
const user = (content) => [{ role: 'user', content }];

// ask is given a client and whether to stream, and returns the events and the ids
// of the tool calls. What all of them end in is the SDK's own: its accumulated
// message.
const apis = {
  async chat(ear, headers, stream, task) {
    const client = new OpenAI({ baseURL: `${openaiURL}/v1`, apiKey: 'sk-none', maxRetries: 0, fetch: ear.fetch });
    const ask = { model: 'm', messages: user(task), tools: tools.map((name) => ({ type: 'function', function: { name, parameters } })) };
    const ids = (message) => (message.tool_calls ?? []).map((c) => c.id);
    if (!stream) {
      const answer = await client.chat.completions.create(ask, { headers });
      return { events: [answer], ids: ids(answer.choices[0].message) };
    }
    const events = [];
    const answer = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } }, { headers });
    for await (const event of answer) events.push(event);
    return { events, ids: ids(await answer.finalMessage()) };
  },

  async responses(ear, headers, stream, task) {
    const client = new OpenAI({ baseURL: `${openaiURL}/v1`, apiKey: 'sk-none', maxRetries: 0, fetch: ear.fetch });
    const ask = { model: 'm', input: user(task), tools: tools.map((name) => ({ type: 'function', name, parameters, strict: false })) };
    const ids = (answer) => answer.output.filter((i) => i.type === 'function_call').map((i) => i.call_id);
    if (!stream) {
      const answer = await client.responses.create(ask, { headers });
      return { events: [answer], ids: ids(answer) };
    }
    const events = [];
    const answer = client.responses.stream(ask, { headers });
    for await (const event of answer) events.push(event);
    return { events, ids: ids(await answer.finalResponse()) };
  },

  async messages(ear, headers, stream, task) {
    const client = new Anthropic({ baseURL: anthropicURL, apiKey: 'sk-none', maxRetries: 0, fetch: ear.fetch });
    const ask = { model: 'm', max_tokens: 100, messages: user(task), tools: tools.map((name) => ({ name, input_schema: parameters })) };
    const ids = (message) => message.content.filter((b) => b.type === 'tool_use').map((b) => b.id);
    if (!stream) {
      const answer = await client.messages.create(ask, { headers });
      return { events: [answer], ids: ids(answer) };
    }
    const events = [];
    const answer = client.messages.stream(ask, { headers });
    for await (const event of answer) events.push(event);
    return { events, ids: ids(await answer.finalMessage()) };
  },
};

for (const task of tasks) {
  for (const [api, ask] of Object.entries(apis)) {
    for (const stream of [false, true]) {
      const ear = new Ear();
      const headers = { 'Counterfoil-Turn': `${task}/${api}/${stream}`, 'Counterfoil-Call': 'ask' };
      const line = { api, stream, task };
      try {
        Object.assign(line, await ask(ear, headers, stream, task));
      } catch (error) {
        line.error = `${error.constructor.name}: ${error.message}`;
      }
      console.log(JSON.stringify({ ...line, status: ear.status, outcome: ear.outcome, digest: await ear.digest() }));
    }
  }
}
