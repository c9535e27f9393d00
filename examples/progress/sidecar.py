"""What a worker needs of the sidecar: stores, leases and effects over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any, Mapping, NamedTuple
from urllib.parse import quote, urlsplit

TRIES = 5
ANSWER_SECONDS = 60.0  # the sidecar itself waits 30 s for a call before it answers
LEASE_WAIT_SECONDS = 60.0
PROBLEM = "urn:counterfoil:problem:"


class Refused(Exception):
    """The sidecar said no.

    name is the problem's: item-exists, etag-mismatch, fenced, lease-held and so on.
    retry_after is in seconds, 0.0 where the answer names none.
    """

    def __init__(self, problem: Mapping[str, Any], retry_after: float) -> None:
        self.name = str(problem["type"]).removeprefix(PROBLEM)
        self.retry_after = retry_after
        super().__init__(f"{problem.get('status')} {self.name}: {problem.get('detail', '')}")


class Item(NamedTuple):
    value: Any
    etag: str  # with its quotes, as If-Match takes it


class Sidecar:
    """Every request of it may be sent twice: effects bear their call's name,
    creates a key of their own, and a replace names the version it replaces. So
    a broken connection is answered by asking again."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Any:
        """Returns the answer's JSON, or None if it has none. Raises Refused
        where the sidecar refused, and RuntimeError where a provider did."""
        for tries_left in reversed(range(TRIES)):
            try:
                return self._send_once(method, path, body, headers)
            except (OSError, http.client.HTTPException):
                if not tries_left:
                    raise

    def _send_once(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_SECONDS)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        answer = json.loads(text) if text else None
        if response.status < 400:
            return answer
        if isinstance(answer, dict) and str(answer.get("type")).startswith(PROBLEM):
            raise Refused(answer, float(response.headers.get("Retry-After") or 0))
        raise RuntimeError(f"{method} {path}: {response.status} {text[:500]!r}")


class Lease:
    """The claim to a run. It is renewed until it is released or lost. fenced is
    the headers that make a request one of this holder's: the sidecar refuses it
    once there is another."""

    def __init__(self, sidecar: Sidecar, run: str, owner: str, ttl_seconds: int) -> None:
        self._sidecar = sidecar
        self._path = f"/-/v1/runs/{quote(run, safe='')}/lease"
        self._ttl_seconds = ttl_seconds
        self._fence = self._take(owner)
        self.fenced = {"Counterfoil-Run": quote(run, safe=""), "Counterfoil-Fence": str(self._fence)}
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def _take(self, owner: str) -> int:
        deadline = time.monotonic() + LEASE_WAIT_SECONDS
        while True:
            try:
                body = {"owner": owner, "ttl_seconds": self._ttl_seconds}
                return int(self._sidecar.send("POST", self._path, body)["fence"])
            except Refused as refusal:
                if refusal.name != "lease-held" or time.monotonic() > deadline:
                    raise
                time.sleep(refusal.retry_after)  # the sidecar says when asking again makes sense

    def _renew(self) -> None:
        # Three tries fit into a lease. Whether it is lost is the sidecar's to
        # say, which it does to the next write: this thread only ends.
        while not self._released.wait(self._ttl_seconds / 3):
            try:
                body = {"fence": self._fence, "ttl_seconds": self._ttl_seconds}
                self._sidecar.send("PUT", self._path, body)
            except Refused as refusal:
                if refusal.name == "fenced":
                    return

    def release(self) -> None:
        self._released.set()
        self._renewing.join()
        try:
            self._sidecar.send("DELETE", f"{self._path}?fence={self._fence}")
        except Refused as refusal:
            if refusal.name != "fenced":  # another holds it, or the first answer to this was lost
                raise


class Store:
    """A store whose writes are those of a lease's holder."""

    def __init__(self, sidecar: Sidecar, name: str, fenced: Mapping[str, str]) -> None:
        self._sidecar = sidecar
        self._path = f"/-/v1/stores/{quote(name, safe='')}"
        self._fenced = fenced

    def make(self, ttl_seconds: int) -> None:
        self._sidecar.send("PUT", self._path, {"ttl_seconds": ttl_seconds})

    def read(self, key: str) -> Item | None:
        try:
            item = self._sidecar.send("GET", self._item(key))
        except Refused as refusal:
            if refusal.name != "not-found":
                raise
            return None
        return Item(item["value"], item["etag"])

    def create(self, key: str, value: Any, requires: str = "") -> Item:
        """Refused with item-exists if the key is there, and with
        receipt-required while the call that it requires has no receipt."""
        more = {"Counterfoil-Requires": requires} if requires else {}
        return self._write(key, value, {"If-None-Match": "*", **more})

    def replace(self, key: str, value: Any, etag: str) -> Item:
        """Refused with etag-mismatch if the key has another version."""
        return self._write(key, value, {"If-Match": etag})

    def _write(self, key: str, value: Any, headers: Mapping[str, str]) -> Item:
        answer = self._sidecar.send("PUT", self._item(key), {"value": value}, {**self._fenced, **headers})
        return Item(value, answer["etag"])

    def _item(self, key: str) -> str:
        return f"{self._path}/items/{quote(key, safe='')}"
