import { randomUUID } from 'node:crypto';
import { CounterfoilSaver } from '../index.mjs';

// Not BASE_URL: Vitest sets that itself.
export const url = process.env.COUNTERFOIL_TEST_URL ?? '';
if (!url) throw new Error('COUNTERFOIL_TEST_URL must say where a sidecar is; node run.mjs starts one');

/**
 * newSaver returns a saver of a user of its own, who has no threads yet.
 * @param {Partial<ConstructorParameters<typeof CounterfoilSaver>[0]>} [options]
 */
export function newSaver(options = {}) {
  return new CounterfoilSaver({ url, user: `user-${randomUUID()}`, ...options });
}
