"""Opens the two files of an adapter's folder, and says what a folder is that has not got them.

Opens nothing else, follows links, waits for nothing: a pipe or a device is refused. Reads no more
than it is told to. Messages name the file; whoever calls names the folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import AdapterError

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
LFS_START = b"version https://git-lfs"

# What the folders of other formats hold. First match decides.
_OTHERS = (
    ("adapters.safetensors", "an MLX adapter: convert it to PEFT's names and layout first"),
    ("adapters.npz", "an MLX adapter: convert it to PEFT's names and layout first"),
    ("pytorch_adapter.bin", "an AdapterHub adapter: train or convert it with PEFT"),
    ("adapter.safetensors", "an AdapterHub adapter: train or convert it with PEFT"),
    ("pytorch_lora_weights.safetensors", "a diffusers adapter, which is for images"),
    ("model.safetensors", "a whole model: name it as the model, or extract a LoRA from it"),
    ("model.safetensors.index.json", "a whole model: name it as the model"),
)


def shown(value: object, most: int = 100) -> str:
    """`value` as Python writes it, in one line of at most `most` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextmanager
def opened(folder: Path, name: str) -> Iterator[tuple[int, int]]:
    """A descriptor and the size in bytes of a plain file of the folder. Raises AdapterError."""
    try:
        # A pipe must not make the reader wait for a writer.
        fd = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise AdapterError(_missing(folder, name)) from None
    except OSError as e:
        raise AdapterError(f"cannot read {name} ({e.strerror})") from None
    except ValueError:
        raise AdapterError("no such folder: its name cannot be a path") from None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise AdapterError(f"{name} is not a plain file")
        yield fd, about.st_size
    finally:
        os.close(fd)


def read_at(fd: int, name: str, offset: int, size: int) -> bytearray:
    """`size` bytes from `offset`. Raises AdapterError when the file has fewer (by now) or the disk
    fails: a mapped file that is cut short meanwhile would end the process."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        try:
            got = os.preadv(fd, [view[done:]], offset + done)
        except OSError as e:
            raise AdapterError(f"cannot read {name} ({e.strerror})") from None
        if not got:
            raise AdapterError(f"{name} is damaged or cut short: it ends at byte {offset + done}")
        done += got
    return data


def read_small(folder: Path, name: str, most: int) -> bytes:
    """A file of at most `most` bytes. Raises AdapterError."""
    with opened(folder, name) as (fd, size):
        if size > most:
            raise AdapterError(f"{name} has {size} bytes; {most} is the most that is read")
        data = bytes(read_at(fd, name, 0, size))
    refuse_pointer(name, data)
    return data


def refuse_pointer(name: str, start: bytes) -> None:
    """Raises AdapterError when the file begins as a Git LFS pointer does."""
    if start.startswith(LFS_START):
        raise AdapterError(
            f"{name} is a Git LFS pointer, not the file: run `git lfs pull` in that repository"
        )


def _missing(folder: Path, name: str) -> str:
    try:
        return _what_is_there(folder, name)
    except OSError as e:
        return f"cannot read the folder ({e.strerror})"


def _what_is_there(folder: Path, name: str) -> str:
    if os.path.islink(folder / name):
        return (
            f"{name} is a link to {shown(os.readlink(folder / name))}, which is not there: copy "
            "the file itself"
        )
    if os.path.islink(folder) and not folder.exists():
        return f"the folder is a link to {shown(os.readlink(folder))}, which is not there"
    if folder.is_file():
        return "this is a file; name the folder that holds it and its adapter_config.json"
    if not folder.is_dir():
        return "no such folder"
    held = sorted(os.listdir(folder))
    for other, what in _OTHERS:
        if other in held and WEIGHTS_FILE not in held:
            return f"{name} is missing: {other} makes this {what}"
    if name == WEIGHTS_FILE:
        for file in held:
            if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")):
                return (
                    f"{shown(file)} is a pickle, which can run code and is never opened; save the "
                    f"adapter as {WEIGHTS_FILE} (save_pretrained with safe_serialization)"
                )
    for file in held:
        if file.endswith(".gguf"):
            return f"{name} is missing: {shown(file)} is llama.cpp's format; save it with PEFT"
    inner = [f for f in held if (folder / f / CONFIG_FILE).exists()]
    if inner:
        return f"{name} is missing; there is an adapter in its folder {shown(inner[0])}"
    return f"{name} is missing: save the adapter with PEFT's save_pretrained"
