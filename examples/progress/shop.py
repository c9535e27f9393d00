"""A shop that reserves, charges, labels, mails and closes, or rather keeps a
ledger as if it did. It does not deduplicate: two requests are two effects."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from worker import STEPS

BODY_BYTES_MAX = 64 * 1024


class Shop(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counter)
        self.ledger: list[dict[str, Any]] = []
        self.lock = threading.Lock()


class Counter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shop

    def do_POST(self) -> None:
        kind = self.path.removeprefix("/")
        length = int(self.headers.get("Content-Length") or 0)
        if kind not in STEPS or length > BODY_BYTES_MAX:
            self.close_connection = True
            return self._answer(404, {"error": f"POST /{{{','.join(STEPS)}}} with at most 64 KiB"})
        data = json.loads(self.rfile.read(length))
        with self.server.lock:
            effect = {"id": f"{kind}-{len(self.server.ledger) + 1}", "kind": kind, **data}
            self.server.ledger.append(effect)
        self._answer(201, effect)

    def do_GET(self) -> None:
        with self.server.lock:
            ledger = list(self.server.ledger)
        self._answer(200, ledger)

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    with Shop() as shop:
        print(f"http://127.0.0.1:{shop.server_address[1]}", flush=True)
        shop.serve_forever()
