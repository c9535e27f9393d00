"""Kills the worker at random moments until its orders are done, lets two compete
for one order, and holds checkpoints and markers against the shop's ledger.

    python3 run.py [--seed N] [--kills N] [path of the sidecar's binary]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Mapping, NamedTuple
from urllib.parse import quote

from gate import Exchange, Gate
from sidecar import Refused, Sidecar, Store
from worker import FENCED, LEASE_SECONDS, MARKER, STEPS, checkpoint_key

HERE = Path(__file__).resolve().parent
EXAMPLE_SECONDS = 90
LIFE_SECONDS = 40.0  # of a worker, its wait for a lease included
SIGNAL_SECONDS = 20.0  # for anything that is waited for
LIVES_MAX = 100  # for one order
REQUESTS_MAX = 9  # the last request that a blow falls at: it leaves most lives too short for an order
KILL_SECONDS_MAX = 0.4  # after a worker's start, for kills by the clock


class Stage:
    """The shop, the sidecar, and the processes of all the workers."""

    def __init__(self, stack: ExitStack, binary: str) -> None:
        self._stack = stack
        self._dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="counterfoil-example-"))
        shop = self._first_line(self.start([sys.executable, str(HERE / "shop.py")]))
        settings = {
            "COUNTERFOIL_UPSTREAMS": f"shop={shop}",
            "COUNTERFOIL_LISTEN": "127.0.0.1:0",
            "COUNTERFOIL_ADMIN_LISTEN": "127.0.0.1:0",
            "COUNTERFOIL_DATA": os.path.join(self._dir, "journal"),
            "COUNTERFOIL_LOG_LEVEL": "error",
        }
        self.address = self._first_line(self.start([binary, "serve", "--announce"], settings))
        self.sidecar = Sidecar(f"http://{self.address}")
        self._shop = Sidecar(shop)

    def start(self, command: list[str], settings: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        # Nothing of the caller's world but the path: neither proxies nor keys.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": self._dir, "PYTHONDONTWRITEBYTECODE": "1", **settings}
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=pipe, text=True, env=env)
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        return process

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        line = process.stdout.readline().strip()
        if not line:
            raise AssertionError(f"{process.args!r} ended at once: {process.communicate()[1]}")
        return line

    def ledger(self, run: str) -> list[dict[str, Any]]:
        """Every effect that there has been for an order."""
        return [effect for effect in self._shop.send("GET", "/ledger") if effect["order"] == run]

    def items(self, run: str) -> list[dict[str, Any]]:
        listing = self.sidecar.send("GET", f"/-/v1/stores/{quote(f'orders/{run}', safe='')}/items?limit=100")
        return list(listing["items"])


class Blow(NamedTuple):
    """Falls on a life once. when is before (the request does not arrive), after
    (it was answered, and the worker dies before it hears of it) or deaf (the
    same, but the worker lives: it has only lost the answer). aim looks at the
    names of all requests so far."""

    when: str
    aim: Callable[[list[str]], bool]


class Life:
    """One process of the worker, behind a gate of its own."""

    def __init__(self, stage: Stage, run: str, owner: str, blow: Blow | None = None) -> None:
        self._blow = blow
        self._names: list[str] = []
        self._started = threading.Event()
        self.fell = ""
        self.said = ""
        self.on_answer: Callable[[Exchange], None] = lambda _: None
        self._gate = Gate(stage.address, self._before, self._after)
        command = [sys.executable, str(HERE / "worker.py"), self._gate.url, run, owner]
        self._process = stage.start(command)
        self._started.set()

    def end(self, seconds: float = LIFE_SECONDS) -> tuple[int, str]:
        """Returns the exit code and the last words. After seconds it kills."""
        try:
            self.said, words = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self.fell = "at some time"
            self.said, words = self._process.communicate()
        self._gate.close()
        for error in self._gate.errors:
            raise error
        return self._process.returncode, words.strip()

    def kill(self) -> None:
        """kill -9. It returns once the process is gone."""
        self._process.kill()
        self._wait(os.WEXITED)

    def freeze(self) -> None:
        """It returns once the process has stopped."""
        self._process.send_signal(signal.SIGSTOP)
        self._wait(os.WSTOPPED)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _wait(self, what: int) -> None:
        try:
            os.waitid(os.P_PID, self._process.pid, what | os.WNOWAIT)
        except ChildProcessError:
            pass  # gone, and someone else has seen it

    def _before(self, request: Exchange) -> bool:
        self._started.wait(SIGNAL_SECONDS)
        if request.name == "PUT lease":  # renewals come by the clock, the others one after another
            return True
        self._names.append(request.name)
        return not (self._blow and self._blow.when == "before" and self._strike(self._blow))

    def _after(self, answer: Exchange) -> bool:
        self.on_answer(answer)
        if answer.name == "PUT lease":
            return True
        return not (self._blow and self._blow.when != "before" and self._strike(self._blow))

    def _strike(self, blow: Blow) -> bool:
        if self.fell or not blow.aim(self._names):
            return False
        self.fell = f"{blow.when} {self._names[-1]}"
        if blow.when != "deaf":
            self.kill()
        return True


class Storm:
    """Orders that are worked on by workers that are killed."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._random = random.Random(seed)
        self._kills = 0
        self._reconciled = 0
        self._fell: Counter[str] = Counter()

    def rage(self, kills_min: int) -> None:
        # The first blow is the one that this is all about.
        between = Blow("before", lambda names: names[-2:] == [f"PUT {checkpoint_key(1)}", f"PUT {MARKER}"])
        orders = 0
        while self._kills < kills_min or not orders:
            orders += 1
            self._order(f"order-{orders}", between if orders == 1 else self._blow())
        check(self._reconciled, "no worker found a checkpoint that the marker did not know")
        say(f"   {self._kills} workers killed over {orders} orders; {self._reconciled} found a checkpoint ahead of its marker.")
        say("   The blows fell")
        for moment, count in sorted(self._fell.items()):
            say(f"   {count:4} {moment}")

    def _order(self, run: str, blow: Blow) -> None:
        for life in range(1, LIVES_MAX + 1):
            if self._live(run, f"worker-{life}", blow):
                return check_order(self._stage, run)
            blow = self._blow()
        raise AssertionError(f"{run} is not done after {LIVES_MAX} lives")

    def _live(self, run: str, owner: str, blow: Blow) -> bool:
        """Returns whether the worker got to its end."""
        life = Life(self._stage, run, owner, blow)
        seconds = self._random.uniform(0, KILL_SECONDS_MAX) if blow.when == "clock" else LIFE_SECONDS
        code, words = life.end(seconds)
        self._reconciled += "reconciled" in life.said
        if life.fell:
            self._fell[life.fell] += 1
        if code == 0:
            return True
        check(code == -signal.SIGKILL and life.fell, f"{run}: {owner} failed by itself, with {code}: {words}")
        self._kills += 1
        if self._random.random() < 0.8:
            release_for_the_dead(self._stage.sidecar, run)
        return False

    def _blow(self) -> Blow:
        nth = self._random.randint(1, REQUESTS_MAX)
        when = self._random.choices(("before", "after", "deaf", "clock"), (3, 3, 2, 2))[0]
        return Blow(when, lambda names: when != "clock" and len(names) == nth)


def release_for_the_dead(sidecar: Sidecar, run: str) -> None:
    """What a supervisor may do that saw its worker die. Otherwise the next one
    waits until the lease has run out."""
    path = f"/-/v1/runs/{run}/lease"
    try:
        lease = sidecar.send("GET", path)
    except Refused as refusal:
        if refusal.name != "not-found":
            raise
        return  # the worker died before the run began
    if lease["held"]:
        sidecar.send("DELETE", f"{path}?fence={lease['fence']}")


def check_order(stage: Stage, run: str) -> None:
    ledger = stage.ledger(run)
    kinds = [effect["kind"] for effect in ledger]
    check(kinds == list(STEPS), f"{run}: each step once, and in order? The ledger has {kinds}")
    want: dict[str, Any] = {MARKER: {"step": len(STEPS)}}
    for step, effect in enumerate(ledger, 1):
        want[checkpoint_key(step)] = {"step": step, "receipt": effect}
    items = stage.items(run)
    check({item["key"]: item["value"] for item in items} == want, f"{run}: {items} is not {want}")
    check(len(items) == len(want), f"{run}: an item is listed twice")


def compete(stage: Stage) -> None:
    """Two workers, one order. The first freezes in the middle of a step."""
    run = "order-of-two"
    charged, frozen, woken = threading.Event(), threading.Event(), threading.Event()
    renewed, turned_away = threading.Semaphore(0), threading.Semaphore(0)
    refused: list[Exchange] = []
    renewals = 4  # at three in a lease: then it is older than its term

    def holders(answer: Exchange) -> None:
        if woken.is_set():
            refused.append(answer)
        if answer.name == "PUT lease":
            renewed.release()
        if answer.name == f"POST {STEPS[1]}":
            charged.set()
            for _ in range(renewals):
                await_signal(renewed.acquire, "the holder did not renew its lease")
            for _ in range(2):
                await_signal(turned_away.acquire, "the rival was not told that the lease is held")
            holder.freeze()
            frozen.set()

    def rivals(answer: Exchange) -> None:
        if answer.name == "POST lease" and answer.problem == "lease-held":
            turned_away.release()

    holder = Life(stage, run, "holder")
    holder.on_answer = holders
    await_signal(charged.wait, "the holder did not charge")
    rival = Life(stage, run, "rival")
    rival.on_answer = rivals
    await_signal(frozen.wait, "the holder did not freeze")
    say(f"   The holder renewed its lease {renewals} times while the rival was turned away, then froze after its charge.")

    code, words = rival.end()
    check(code == 0, f"the rival failed: {words}")
    check_order(stage, run)
    before = stage.items(run), stage.ledger(run)
    say("   The rival took the lease once it had run out, found the charge, and finished the order.")

    woken.set()
    holder.wake()
    code, words = holder.end()
    check(code == FENCED, f"the holder should have ended as fenced, not with {code}: {words}")
    check(f"PUT {checkpoint_key(2)}" in [answer.name for answer in refused], "the woken holder did not try to write")
    check(all(answer.problem == "fenced" for answer in refused), f"not all was refused: {refused}")
    check(before == (stage.items(run), stage.ledger(run)), "the woken holder changed something")
    say(f"   The holder woke. It was refused {len(refused)} times, wrote nothing, and ended: {words}")


def check_requires(stage: Stage) -> None:
    """No checkpoint without its effect."""
    store = Store(stage.sidecar, "orders/none", {})
    store.make(ttl_seconds=60)
    try:
        store.create(checkpoint_key(1), {}, requires=f"order-none:1:{STEPS[0]}")
    except Refused as refusal:
        check(refusal.name == "receipt-required", str(refusal))
        check(store.read(checkpoint_key(1)) is None, "a refused checkpoint was written")
        return say(f"   {refusal}")
    raise AssertionError("a checkpoint was written whose effect never was")


def await_signal(wait: Callable[..., bool], failure: str) -> None:
    check(wait(timeout=SIGNAL_SECONDS), failure)


def check(holds: object, failure: str) -> None:
    if not holds:
        raise AssertionError(failure)


def say(text: str) -> None:
    print(text, flush=True)


def build_sidecar(stack: ExitStack) -> str:
    binary = os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="counterfoil-example-")), "sidecar")
    subprocess.run(["go", "build", "-o", binary, "./cmd/sidecar"], cwd=HERE.parent.parent, check=True)
    return binary


def interrupted(number: int, _: FrameType | None) -> None:
    raise TimeoutError(f"the example did not end in {EXAMPLE_SECONDS} s, or was told to stop (signal {number})")


def main() -> int:
    arguments = argparse.ArgumentParser(description="Kills a worker until its orders are done.")
    arguments.add_argument("--seed", type=int, default=random.randrange(2**31))
    arguments.add_argument("--kills", type=int, default=24, help="at least so many, 24 by default")
    arguments.add_argument("sidecar", nargs="?", help="built from this repository by default")
    options = arguments.parse_args()
    with ExitStack() as stack:
        binary = os.path.abspath(options.sidecar) if options.sidecar else build_sidecar(stack)
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, interrupted)
        signal.alarm(EXAMPLE_SECONDS)
        stage = Stage(stack, binary)
        say(f"1. Workers are killed at random moments (--seed {options.seed}), the first between checkpoint and marker.")
        Storm(stage, options.seed).rage(options.kills)
        say("   Each step's effect is in the ledger once, each checkpoint is there once, each marker is at 5.")
        say(f"2. Two workers want one order. A lease is for {LEASE_SECONDS} s.")
        compete(stage)
        say("3. A checkpoint that claims an effect that never was:")
        check_requires(stage)
    return 0


if __name__ == "__main__":
    sys.exit(main())
