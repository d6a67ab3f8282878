"""Stands where vLLM's interpreter would: makes a process group as a vLLM worker does, alone in its
world, and then answers `/health`.
"""

import socket
import sys
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch.distributed as dist

with socket.create_server(("127.0.0.1", 0)) as free:
    meeting = free.getsockname()[1]
dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{meeting}",
    rank=0,
    world_size=1,
    timeout=timedelta(seconds=20),
)


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Health).serve_forever()
