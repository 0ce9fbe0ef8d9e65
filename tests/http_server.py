"""A small HTTP server in a thread, for as long as a test needs one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """A test's own `answer` answers its requests."""

    def answer(self) -> None:
        """Answer the request of `command` and `path`."""
        raise NotImplementedError

    def _answer(self) -> None:
        self.answer()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 -- the names that are asked for

    def read_body(self) -> bytes:
        """Read what was sent."""
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def say(self, content: bytes = b"", *, status: int = 200, content_type: str = "application/json") -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """Serve on a free port; the value is the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
