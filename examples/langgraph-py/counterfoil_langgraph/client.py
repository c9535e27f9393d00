"""The store API of a sidecar, as far as the saver needs it."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote, urlencode, urlsplit

BATCH_OPERATIONS = 100  # the API's most
_PAGE_KEYS = 100  # the API's most
_PAGE_VALUES = 20
_ANSWER_BYTES_MAX = 64 * 1024 * 1024  # a page of 20 items stays far below
_BACKOFF_SECONDS = 0.05  # before the second attempt; doubled for each one after
_NAME_BYTES_MAX = 256  # of a user or a run
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_REMEMBERED_MAX = 1000  # stores
_PROBLEM = "urn:counterfoil:problem:"


class Item(TypedDict):
    """An item as the API answers it."""

    key: str
    etag: str
    value: Any  # left out by lists of keys
    tags: NotRequired[dict[str, str]]


class Operation(TypedDict):
    """One of a batch."""

    op: str  # put or delete
    key: str
    value: NotRequired[Any]  # of a put
    tags: NotRequired[dict[str, str]]
    if_match: NotRequired[str]
    if_none_match: NotRequired[str]


class CounterfoilError(Exception):
    """What the API, or the way to it, refused.

    problem is its name, such as fenced, or unreachable where no answer came;
    status is the HTTP status, or 0; operation is the index of the operation
    that a batch failed on; safe_to_retry says that the same request may succeed
    later.
    """

    def __init__(
        self, problem: str, detail: str, *, status: int = 0, operation: int | None = None, safe_to_retry: bool = False
    ) -> None:
        super().__init__(f"{problem}: {detail}")
        self.problem = problem
        self.status = status
        self.operation = operation
        self.safe_to_retry = safe_to_retry


class Client:
    """Sends requests. Each is safe to repeat: what it sends is a read, a create,
    a replacement of one version, or the same again. Threads may share it."""

    def __init__(
        self, url: str, user: str, *, token: str | None, run: str | None, fence: int | None, timeout: float, attempts: int
    ) -> None:
        at = urlsplit(url)
        if at.scheme not in ("http", "https") or not at.hostname or at.query or at.fragment:
            raise ValueError(f"url must be where the sidecar is, such as http://127.0.0.1:8100, not {url!r}")
        for name, value in (("user", user), ("run", "-" if run is None else run)):
            if not 1 <= len(value.encode("utf-8")) <= _NAME_BYTES_MAX:
                raise ValueError(f"{name} must be 1 to {_NAME_BYTES_MAX} bytes of UTF-8")
        if token is not None and not _VISIBLE.fullmatch(token):
            raise ValueError("token must be visible ASCII characters")
        if (run is None) != (fence is None):
            raise ValueError("run and fence go together: give both, or neither")
        if not 0 < timeout <= 600 or not 1 <= attempts <= 10:
            raise ValueError("timeout must be up to 600 seconds, and attempts 1 to 10")
        self._connect = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
        self._address = at.netloc
        self._base = at.path.rstrip("/") + "/-/v1/stores/"
        self._identity = {"Counterfoil-User": quote(user, safe=""), **({"Counterfoil-Token": token} if token else {})}
        self._fencing = {} if run is None else {"Counterfoil-Run": quote(run, safe=""), "Counterfoil-Fence": str(fence)}
        self._timeout = timeout
        self._attempts = attempts
        self._apart: set[str] = set()  # stores that were found to keep their users apart

    def get(self, store: str, key: str) -> Item | None:
        item: Item | None = self._if_there("GET", _item_path(store, key)) if self._is_there(store) else None
        return item

    def put(self, store: str, key: str, value: Any, condition: Mapping[str, str]) -> None:
        """Makes the store if there is none, as batch does."""
        self._in_store(store, "PUT", _item_path(store, key), {"value": value}, {**self._fencing, **condition})

    def batch(self, store: str, operations: Sequence[Operation]) -> None:
        """Does up to 100 operations, all or none."""
        self._in_store(store, "POST", f"{quote(store, safe='')}/batch", {"operations": operations}, self._fencing)

    def remove(self, store: str, key: str) -> None:
        """Deletes an item, if it is there."""
        if self._is_there(store):
            self._if_there("DELETE", _item_path(store, key), self._fencing)

    def list(self, store: str, prefix: str, *, values: bool, tags: Mapping[str, str] = {}) -> Iterator[Item]:
        """Yields the items whose keys begin with prefix, in order of creation.
        There are none in a store that was never made."""
        query = [("limit", str(_PAGE_VALUES if values else _PAGE_KEYS)), ("prefix", prefix)]
        query += [("tag", f"{name}:{value}") for name, value in tags.items()]
        query += [] if values else [("keys_only", "true")]
        page: dict[str, Any] = {"next": ""} if self._is_there(store) else {}
        while "next" in page:
            after = [("after", page["next"])] if page["next"] else []
            page = self._if_there("GET", f"{quote(store, safe='')}/items?{urlencode(query + after)}") or {"items": []}
            yield from page["items"]

    def _is_there(self, store: str) -> bool:
        """Reports whether there is a store. Like _in_store it lets nobody near
        the items of one that does not keep its users apart."""
        if store in self._apart:
            return True
        answer = self._if_there("GET", quote(store, safe=""))
        if answer:
            self._check(store, answer)
        return answer is not None

    def _in_store(self, store: str, method: str, path: str, body: Any, headers: Mapping[str, str]) -> None:
        """Sends what needs a store, which is made if it is not there."""
        if store in self._apart:
            try:
                return self._send(method, path, body, headers)
            except CounterfoilError as error:
                if error.problem != "not-found":
                    raise
        self._check(store, self._send("PUT", quote(store, safe=""), {"user_isolation": True}))
        self._send(method, path, body, headers)

    def _check(self, store: str, answer: Mapping[str, Any]) -> None:
        if answer["user_isolation"] is not True:
            detail = f"the store {store} was made without user_isolation: one user would read another's threads; set another prefix"
            raise CounterfoilError("not-isolated", detail, status=409)
        if len(self._apart) >= _REMEMBERED_MAX:
            self._apart.clear()
        self._apart.add(store)

    def _if_there(self, method: str, path: str, headers: Mapping[str, str] = {}) -> Any:
        """Returns None where there is no such thing."""
        try:
            return self._send(method, path, None, headers)
        except CounterfoilError as error:
            if error.problem != "not-found":
                raise
            return None

    def _send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Any:
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(method, self._base + path, data, headers)
            except CounterfoilError as error:
                again = error.status == 0 or (error.status >= 500 and error.safe_to_retry)
                if not again or attempt == self._attempts:
                    raise
            time.sleep(_BACKOFF_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("there is at least one attempt")

    def _once(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> Any:
        connection = self._connect(self._address, timeout=self._timeout)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json", **self._identity, **headers})
            response = connection.getresponse()
            text = response.read(_ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            detail = f"{method} {self._address}{path} got no answer: {error!r}"
            raise CounterfoilError("unreachable", detail, safe_to_retry=True) from error
        finally:
            connection.close()
        if len(text) > _ANSWER_BYTES_MAX:
            detail = f"an answer is longer than {_ANSWER_BYTES_MAX} bytes: is this a sidecar?"
            raise CounterfoilError("answer-too-large", detail, status=response.status)
        return _read(response.status, text, f"{method} {self._address}{path}")


def _read(status: int, text: bytes, what: str) -> Any:
    try:
        body = json.loads(text) if text else None
    except ValueError:
        body, status = None, max(status, 400)
    if status < 300:
        return body
    problem = body if isinstance(body, dict) else {}
    raise CounterfoilError(
        str(problem.get("type", "unexpected-answer")).removeprefix(_PROBLEM),
        str(problem.get("detail", f"{what} was answered with status {status} and no problem document: is this a sidecar?")),
        status=status,
        operation=problem.get("operation"),
        safe_to_retry=problem.get("safe_to_retry") is True,
    )


def _item_path(store: str, key: str) -> str:
    return f"{quote(store, safe='')}/items/{quote(key, safe='')}"
