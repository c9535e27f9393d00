"""What the tests run against: a sidecar, and a way to it that loses answers."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
try:
    import langgraph.checkpoint.base as base
except ImportError:
    sys.path.insert(0, str(HERE / "stub"))
    import langgraph.checkpoint.base as base

STUBBED = HERE in Path(str(base.__file__)).parents


class Sidecar:
    """A process on a new journal. COUNTERFOIL_SIDECAR is the binary's path."""

    def __init__(self) -> None:
        binary = os.environ.get("COUNTERFOIL_SIDECAR")
        if not binary:
            raise SystemExit("set COUNTERFOIL_SIDECAR to the path of the sidecar's binary: make build makes bin/sidecar")
        self._dir = tempfile.TemporaryDirectory(prefix="counterfoil-example-")
        env = {
            "PATH": os.environ.get("PATH", ""),
            "COUNTERFOIL_UPSTREAMS": "none=http://127.0.0.1:9",
            "COUNTERFOIL_LISTEN": "127.0.0.1:0",
            "COUNTERFOIL_ADMIN_LISTEN": "127.0.0.1:0",
            "COUNTERFOIL_DATA": os.path.join(self._dir.name, "journal"),
            "COUNTERFOIL_LOG_LEVEL": "error",
        }
        self._process = subprocess.Popen([binary, "serve", "--announce"], env=env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = "http://" + self._process.stdout.readline().strip()

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] = {}) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        connection.request(method, "/-/v1" + path, None if body is None else json.dumps(body), headers)
        text = connection.getresponse().read()
        connection.close()
        return json.loads(text) if text else None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._dir.cleanup()


class Way(ThreadingHTTPServer):
    """Passes requests on. The answer to the nth, counted from 1, is lost."""

    daemon_threads = True

    def __init__(self, url: str, lose: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.to = urlsplit(url).netloc
        self.lose = lose
        self.count = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._serving = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._serving.start()

    def close(self) -> None:
        self.shutdown()
        self._serving.join()
        self.server_close()


class _Passage(BaseHTTPRequestHandler):
    server: Way

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(self.server.to, timeout=30)
        connection.request(self.command, self.path, body or None, dict(self.headers))
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        self.server.count += 1
        if self.server.count == self.server.lose:
            return
        self.send_response_only(response.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = _pass

    def log_message(self, format: str, *args: Any) -> None:
        pass
