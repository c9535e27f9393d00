"""A gate between one life of the worker and the sidecar. It passes requests on,
and is where the driver strikes: before a request arrives, or after it was
answered and before the worker hears of it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, NamedTuple
from urllib.parse import unquote

BODY_BYTES_MAX = 1024 * 1024
ANSWER_SECONDS = 60.0


class Exchange(NamedTuple):
    """A request and its answer. Status is 0 before the sidecar has answered."""

    method: str
    path: str
    status: int = 0
    body: bytes = b""

    @property
    def name(self) -> str:
        """What the worker is at, as in "PUT checkpoint/3" or "POST charge"."""
        *_, parent, last = self.path.partition("?")[0].split("/")
        return f"{self.method} {'store' if parent == 'stores' else unquote(last)}"

    @property
    def problem(self) -> str:
        if self.status < 400:
            return ""
        return str(json.loads(self.body)["type"]).rpartition(":")[2]


# A Hook looks at an exchange, and may strike. False: the worker hears nothing,
# its connection is broken off.
Hook = Callable[[Exchange], bool]


class Gate(ThreadingHTTPServer):
    daemon_threads = True  # one may hold an answer that no one waits for any more

    def __init__(self, sidecar: str, before: Hook, after: Hook) -> None:
        super().__init__(("127.0.0.1", 0), Passage)
        self.sidecar = sidecar
        self.before = before
        self.after = after
        self.errors: list[BaseException] = []
        self._serving = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._serving.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error and not isinstance(error, OSError):  # an OSError: the worker is gone
            self.errors.append(error)

    def close(self) -> None:
        self.shutdown()
        self._serving.join()
        self.server_close()


class Passage(BaseHTTPRequestHandler):
    server: Gate

    def _pass(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_BYTES_MAX:
            raise ValueError(f"a body of {length} bytes")
        data = self.rfile.read(length)
        request = Exchange(self.command, self.path)
        if not self.server.before(request):
            return
        connection = http.client.HTTPConnection(self.server.sidecar, timeout=ANSWER_SECONDS)
        try:
            connection.request(self.command, self.path, data, dict(self.headers))
            response = connection.getresponse()
            answer = request._replace(status=response.status, body=response.read())
        finally:
            connection.close()
        if self.server.after(answer):
            self._answer(answer, response)

    def _answer(self, answer: Exchange, response: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status)
        for name in ("Content-Type", "Retry-After", "ETag"):
            if name in response.headers:
                self.send_header(name, response.headers[name])
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = _pass

    def log_message(self, format: str, *args: Any) -> None:
        pass
