"""Takes the command line of ``vllm serve`` and answers, or fails to, in the way that FAKE_WAY names."""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAY = os.environ.get("FAKE_WAY", "ok")
MODEL = sys.argv[2]
OPTIONS = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=False))
CONFIG = json.loads(OPTIONS.get("--speculative-config", "null"))
MODELS = {
    "data": [{"id": "other" if WAY == "wrong_model" else MODEL, "max_model_len": 2048, "owned_by": "vllm"}]
}
INFO = {
    "vllm_config": {
        "speculative_config": None if WAY == "wrong_k" else CONFIG,
        "scheduler_config": {"max_num_seqs": 4},
        "cache_config": {"enable_prefix_caching": False},
    }
}
PAGES = {
    "/health": {},
    "/version": {"version": "0.32.0"},
    "/v1/models": MODELS,
    "/server_info?config_format=json": INFO,
}
closed = threading.Event()
TOKEN = {"choices": [{"message": {"content": "1"}}], "usage": {"completion_tokens": 2}}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if (
            WAY == "needs_key"
            and self.headers["authorization"] != "Bearer right"
            and self.path == "/v1/models"
        ):
            self.answer(401, {"error": "Unauthorized"})
        elif self.path not in PAGES or (WAY == "health_only" and self.path != "/health"):
            self.answer(404, {"detail": "Not Found"})
        elif WAY == "loading" and self.path == "/v1/models":
            self.answer(503, {"error": {"message": "still loading"}})
        else:
            self.answer(200, PAGES[self.path])

    def do_POST(self) -> None:
        if WAY == "generation_hangs":
            time.sleep(60)
        if WAY == "generation_dies":
            prefix = "(EngineCore pid=9) ERROR 05-01 18:55:06 [core.py:1512]"
            log(
                f"{prefix} EngineCore encountered a fatal error.\n{prefix} ValueError: no kernel for "
                "temperature"
            )
            self.answer(500, {"error": {"message": "EngineCore encountered an issue"}})
            os._exit(1)
        if WAY == "closes_with_token":
            self.server.shutdown()
            closed.wait()
        self.answer(200, TOKEN)
        if WAY == "exits_after_token":
            log("RuntimeError: out of memory")
            os._exit(3)

    def answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def log(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    if WAY == "silent":
        sys.exit(2)
    log("(APIServer pid=1) INFO 05-01 18:55:00 [api_server.py:1] vLLM API server version 0.32.0")
    if WAY == "dies":
        log(
            "(EngineCore pid=187) ERROR 05-01 18:55:06 [core.py:1512] ValueError: NvFp4 MoE backend 'MARLIN' "
            "does not support the deployment configuration since kernel does not support quantization scheme "
            "u8."
        )
        log("(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.")
        log("::error::a line that must not reach the runner as a command")
        sys.exit(1)
    if WAY == "killed":
        os.abort()
    if WAY == "hangs":
        time.sleep(60)
    port = int(OPTIONS["--port"])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.serve_forever(0.01)
    server.socket.close()
    closed.set()
    time.sleep(60)


main()
