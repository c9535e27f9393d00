// A small JSON server on a free port, which it prints. Each answer takes a few
// milliseconds, so that there is something to be killed in.
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const bodyMax = 1024 * 1024;
const slowest = 20; // milliseconds

export async function serve(handle) {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) {
      text += chunk;
      if (text.length > bodyMax) return request.destroy();
    }
    await pause(Math.random() * slowest);
    let answer = [400, { error: 'the body is not JSON' }];
    try {
      answer = await handle({ method: request.method, path: request.url, body: JSON.parse(text || 'null') });
    } catch (error) {
      answer[1].error = error.message;
    }
    await pause(Math.random() * slowest);
    response.writeHead(answer[0], { 'Content-Type': 'application/json' }).end(JSON.stringify(answer[1]));
  });
  await new Promise((yes) => server.listen(0, '127.0.0.1', yes));
  console.log(`http://127.0.0.1:${server.address().port}`);
}
