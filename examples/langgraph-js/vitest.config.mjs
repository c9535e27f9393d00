import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/*.test.mjs'],
    globals: true, // the public suite expects them
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
