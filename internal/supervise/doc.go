// Package supervise runs a command so that nothing of it outlives it, nor the
// program that started it, however that one ends.
//
// Between the two stands a keeper: the same program again, running [Keep]. It
// is the command's parent and, on Linux, the new parent of everything that the
// command leaves behind. When the command has ended, the keeper ends what is
// left; when the program above is gone, it ends everything. Start with [Start].
//
// What is promised:
//  1. When [Process.Wait] returns, no descendant of the command runs, but for
//     those that Exit.Left counts.
//  2. When the program that called Start is gone, by kill -9 too, its command
//     and every descendant are killed at once.
//  3. When the keeper is gone, by kill -9 too, the kernel kills the command, and
//     Start's program the rest.
//
// Outside Linux there are no new parents and no death signals: what is ended is
// the command's process group, and on a terminal the command alone.
package supervise
