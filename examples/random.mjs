// A Random gives the same numbers for the same seed (mulberry32).
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  // upTo returns a number from 0 to max, max itself not.
  upTo(max) {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * max;
  }

  // pick returns one of the choices.
  pick(choices) {
    return choices[Math.floor(this.upTo(choices.length))];
  }
}
