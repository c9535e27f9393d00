// What the drivers of the examples share: processes that are started, killed
// and always cleaned up, free ports, and the sidecar.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const stderrMax = 16384; // characters of a process's last words
const startSeconds = 20;

// A Stage is a folder of its own and the processes of one run of an example.
export class Stage {
  dir = mkdtempSync(join(tmpdir(), 'counterfoil-example-'));
  #running = new Set();
  #closed = false;
  #fail;
  // failed is rejected with what an onLine throws.
  failed = new Promise((_, no) => (this.#fail = no));

  // start begins a process. onLine gets each line that it prints.
  start(name, command, args, { env = {}, onLine = () => {} } = {}) {
    if (this.#closed) throw new Error('the example is over');
    const child = spawn(command, args, {
      // Nothing of the caller's world but the path: neither proxies nor keys.
      env: { PATH: process.env.PATH, HOME: this.dir, TMPDIR: this.dir, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const part = { name, pid: child.pid, code: undefined, stderr: '' };
    child.stderr.setEncoding('utf8').on('data', (s) => (part.stderr = (part.stderr + s).slice(-stderrMax)));
    const lines = createInterface({ input: child.stdout });
    const firstLine = new Promise((yes) => lines.once('line', yes).once('close', () => yes('')));
    lines.on('line', (line) => {
      try {
        onLine(line);
      } catch (error) {
        this.#fail(error);
      }
    });
    this.#running.add(part);
    part.ended = new Promise((yes) => {
      child.once('error', (e) => ((part.stderr += e.message), yes(-1)));
      child.once('close', (code) => yes(code ?? -1)); // -1: by a signal
    }).then((code) => {
      this.#running.delete(part);
      return (part.code = code);
    });
    // kill is kill -9. It returns once the process is gone.
    part.kill = () => (child.kill('SIGKILL'), part.ended);
    // ready is the first line that the process prints.
    part.ready = async () => {
      const line = await within(startSeconds, firstLine, `${name} did not start`);
      if (!line) throw new Error(`${name} ended at once: ${(await part.ended, part.stderr.trim())}`);
      return line;
    };
    return part;
  }

  // node starts a script of this Node.
  node(name, script, args, options) {
    return this.start(name, process.execPath, [fileURLToPath(script), ...args], options);
  }

  // close ends all processes. No other can be started after it.
  async close() {
    this.#closed = true;
    await Promise.all([...this.#running].map((part) => part.kill()));
    rmSync(this.dir, { recursive: true, force: true });
  }
}

// play runs an example on a stage, for seconds at most, and ends the process:
// with 0 if act returns, with 1 if it throws.
export async function play(seconds, act) {
  const stage = new Stage();
  const interrupted = new Promise((_, no) => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => no(new Error(`stopped by ${signal}`)));
  });
  let code = 0;
  try {
    await within(seconds, Promise.race([act(stage), stage.failed, interrupted]), 'the example did not end');
  } catch (error) {
    console.error(`\nFAILED: ${error.message}`);
    code = 1;
  }
  await stage.close();
  process.exit(code);
}

// within rejects with text unless promise settles within seconds.
export async function within(seconds, promise, text) {
  let timer;
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error(`${text} within ${seconds} s`)), seconds * 1000)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// buildSidecar returns the binary's path: the given one, or one built from this
// repository.
export function buildSidecar(stage, given) {
  if (given) return resolve(given);
  const binary = join(stage.dir, 'sidecar');
  goRun(['build', '-o', binary, './cmd/sidecar'], process.env);
  return binary;
}

// goRun runs the go command in the repository's root.
export function goRun(args, env) {
  const root = fileURLToPath(new URL('..', import.meta.url));
  const go = spawnSync('go', args, { cwd: root, env, encoding: 'utf8' });
  if (go.status !== 0) throw new Error(`go ${args[0]}: ${go.error?.message ?? go.stderr.trim()}`);
}

// startSidecar starts a sidecar and returns once it serves. Its settings are
// the file and whatever variables env adds.
export async function startSidecar(stage, binary, configURL, env) {
  const sidecar = stage.start('the sidecar', binary, ['serve', '--announce'], {
    env: {
      COUNTERFOIL_CONFIG: fileURLToPath(configURL),
      COUNTERFOIL_DATA: join(stage.dir, 'journal'),
      COUNTERFOIL_LOG_LEVEL: 'error',
      ...env,
    },
  });
  await sidecar.ready();
  return sidecar;
}

// freePort finds a port that is free now. It stays below the ports that the
// kernel gives to outgoing connections: one of those could take it while a
// killed sidecar is away.
export async function freePort() {
  for (let tries = 0; tries < 50; tries++) {
    const port = 20000 + Math.floor(Math.random() * 12000);
    if (await isFree(port)) return port;
  }
  throw new Error('no free port was found between 20000 and 32000');
}

function isFree(port) {
  return new Promise((yes) => {
    const server = createServer();
    server.once('error', () => yes(false));
    server.listen(port, '127.0.0.1', () => server.close(() => yes(true)));
  });
}
