export { CounterfoilError } from './client.mjs';
export { CounterfoilSaver } from './saver.mjs';
