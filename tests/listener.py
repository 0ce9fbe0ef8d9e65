"""`python -m tests.listener PORT TEXT LOG`: answers each HTTP request with a text, and records datagrams, too."""

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> None:
    port, text, log = int(sys.argv[1]), sys.argv[2].encode(), Path(sys.argv[3])
    lock = threading.Lock()

    def record(**facts: object) -> None:
        with lock, log.open("a") as out:
            out.write(json.dumps(facts) + "\n")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length).decode(errors="replace")
            record(kind="http", method=self.command, path=self.path, peer=self.client_address[0], body=body)
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_HEAD = do_CONNECT = answer  # noqa: N815 -- the names that http.server asks for

        def log_message(self, format: str, *args: object) -> None:
            pass

    def datagrams() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("0.0.0.0", port))
            while True:
                data, peer = sock.recvfrom(4096)
                record(kind="udp", peer=peer[0], body=data.decode(errors="replace"))

    threading.Thread(target=datagrams, daemon=True).start()
    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
