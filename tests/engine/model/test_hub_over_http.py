"""huggingface_hub itself against a server of its protocol: fetched once, then without network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny_models import made, saved

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import sys
from engine.errors import ModelError
from engine.model.config import model_config
from engine.model.loaders import load_model
from engine.model.text import load_tokenizer
load_tokenizer(sys.argv[1])
print(load_model(sys.argv[1], "float32").hash)
for name in sys.argv[2:]:
    try:
        model_config(name)
    except ModelError as e:
        print(e)
"""


class Server(ThreadingHTTPServer):
    """Serves the files of a folder as someone/tiny."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.got: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        if not path.startswith(("/api/models/someone/tiny", "/someone/tiny/resolve/main/")):
            gated = "gated" in path
            return self.refuse(403 if gated else 401, "GatedRepo" if gated else "RepoNotFound")
        if path.startswith("/api/"):
            if "/revision/main" not in path:
                return self.refuse(404, "RevisionNotFound")
            files = [
                {"rfilename": p.name, "size": p.stat().st_size}
                for p in self.server.folder.iterdir()
            ]
            content = json.dumps({"id": "someone/tiny", "sha": COMMIT, "siblings": files}).encode()
        else:
            file = self.server.folder / path.rpartition("/")[2]
            if not file.exists():
                return self.refuse(404, "EntryNotFound")
            content = file.read_bytes()
            if body:
                self.server.got.append(file.name)
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)
        return None

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.full
def test_a_model_comes_over_http_once_and_each_refusal_has_its_sentence(tmp_path):
    server = Server(saved(made("Qwen2"), tmp_path / "hub"))
    (server.folder / "run.py").write_text("never")
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(*names: str, **more: str) -> list[str]:
        environment = os.environ | {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "c")}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *names],
            env=environment | more, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    whole, gated, nobody, revision = ask(
        "hf:someone/tiny", "hf:someone/gated", "hf:someone/nobody", "hf:someone/tiny@v9"
    )
    assert len(whole) == 64
    assert sorted(server.got) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    assert gated.startswith("hf:someone/gated is gated: accept its terms")
    assert nobody.startswith("hf:someone/nobody is not found: check the spelling")
    assert revision == "someone/tiny has no revision 'v9'"
    server.shutdown()
    server.server_close()
    assert ask("hf:someone/tiny", HF_HUB_OFFLINE="1") == [whole]
