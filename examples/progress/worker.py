"""A worker with five steps that can be killed at any moment.

    python3 worker.py SIDECAR-URL RUN OWNER

Each step has one effect at the shop, and leaves one checkpoint. One marker says
how many steps are done. Exit code 3: another worker has the run.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Mapping
from urllib.parse import quote

from sidecar import TRIES, Item, Lease, Refused, Sidecar, Store

STEPS = ("reserve", "charge", "label", "mail", "close")
LEASE_SECONDS = 2  # short, for the example's sake; 30 is usual
STORE_SECONDS = 30 * 24 * 3600
MARKER = "progress"
FENCED = 3  # exit code


def checkpoint_key(step: int) -> str:
    return f"checkpoint/{step}"


class Worker:
    def __init__(self, sidecar: Sidecar, run: str, fenced: Mapping[str, str]) -> None:
        self._sidecar = sidecar
        self._run = run
        self._fenced = fenced
        self._store = Store(sidecar, f"orders/{run}", fenced)

    def work(self) -> None:
        self._store.make(STORE_SECONDS)
        marker = self._reconcile(self._marker())
        say("resumed", marker.value["step"])
        for step in range(marker.value["step"] + 1, len(STEPS) + 1):
            marker = self._do(step, marker)

    def _do(self, step: int, marker: Item) -> Item:
        receipt = self._effect(step)
        self._checkpoint(step, {"step": step, "receipt": receipt})
        say("checkpoint", step)
        marker = self._advance(step, marker)
        say("marker", step)
        return marker

    def _marker(self) -> Item:
        marker = self._store.read(MARKER)
        if marker:
            return marker
        try:
            return self._store.create(MARKER, {"step": 0})
        except Refused as refusal:
            if refusal.name != "item-exists":
                raise
            return self._marker()

    def _reconcile(self, marker: Item) -> Item:
        """A worker that died between checkpoint and marker left a checkpoint
        that the marker does not know."""
        step = marker.value["step"] + 1
        if self._store.read(checkpoint_key(step)):
            say("reconciled", step)
            return self._advance(step, marker)
        return marker

    def _effect(self, step: int) -> Any:
        """The call has the same name in every life of the worker, and the same
        content, which is why it is made from the checkpoint before."""
        body = {"order": self._run, "after": self._before(step)}
        headers = {**self._fenced, "Counterfoil-Turn": str(step), "Counterfoil-Call": STEPS[step - 1]}
        for _ in range(TRIES):
            try:
                return self._sidecar.send("POST", f"/shop/{STEPS[step - 1]}", body, headers)
            except Refused as refusal:
                if refusal.name != "in-progress":
                    raise
                time.sleep(refusal.retry_after)  # an earlier life's call is still under way
        raise RuntimeError(f"the call of step {step} did not end")

    def _before(self, step: int) -> str | None:
        if step == 1:
            return None
        item = self._store.read(checkpoint_key(step - 1))
        if not item:
            raise RuntimeError(f"the marker is ahead of {checkpoint_key(step - 1)}")
        return str(item.value["receipt"]["id"])

    def _checkpoint(self, step: int, value: Any) -> None:
        requires = f"{quote(self._run, safe='')}:{step}:{STEPS[step - 1]}"
        try:
            self._store.create(checkpoint_key(step), value, requires)
        except Refused as refusal:
            if refusal.name != "item-exists":
                raise
            # Ours, if the answer to an earlier try was lost: then it is equal.
            item = self._store.read(checkpoint_key(step))
            if not item or item.value != value:
                raise RuntimeError(f"{checkpoint_key(step)} holds something else") from refusal

    def _advance(self, step: int, marker: Item) -> Item:
        for _ in range(TRIES):
            try:
                return self._store.replace(MARKER, {"step": step}, marker.etag)
            except Refused as refusal:
                if refusal.name != "etag-mismatch":
                    raise
            marker = self._marker()
            if marker.value["step"] >= step:  # the answer to an earlier try was lost
                return marker
        raise RuntimeError(f"the marker keeps changing: it should become {step}")


def say(what: str, step: int) -> None:
    print(json.dumps({"did": what, "step": step}), flush=True)


def main() -> int:
    url, run, owner = sys.argv[1:]
    sidecar = Sidecar(url)
    lease = Lease(sidecar, run, owner, LEASE_SECONDS)
    try:
        Worker(sidecar, run, lease.fenced).work()
    except Refused as refusal:
        if refusal.name != "fenced":
            raise
        print(refusal, file=sys.stderr)
        return FENCED
    finally:
        lease.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
