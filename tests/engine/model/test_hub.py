"""`hf:` models: what is fetched, what the cache is trusted for, and what each failure says."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors
from safetensors.torch import load_file, save_file
from tiny_models import made, prompt, saved, worst

from engine.errors import ModelError
from engine.model import hub
from engine.model.config import model_config
from engine.model.fetch import plan_download
from engine.model.loaders import load_model
from engine.model.text import load_tokenizer

NAME = "hf:someone/tiny"


class Shelf:
    """A hub with one model, its files in a folder; a cache beside it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        self.fetched: list[str] = []
        self.asked = 0
        self.reachable = True
        self.revision = "one"
        self.absent: set[str] = set()

    @property
    def snapshot(self) -> Path:
        return self.cache / self.revision

    def cached(self, name, file):
        if file in self.absent:
            return hub.Absent.ABSENT
        return self.snapshot / file if (self.snapshot / file).exists() else None

    def files(self, name):
        self.asked += 1
        if not self.reachable:
            raise ModelError(f"{name} is not in the cache whole, and the hub cannot be reached")
        return {p.name: p.stat().st_size for p in self.folder.iterdir()}

    def fetch(self, name, file):
        if not (self.folder / file).exists():
            self.absent.add(file)
            return hub.Absent.ABSENT
        self.snapshot.mkdir(parents=True, exist_ok=True)
        (self.snapshot / file).write_bytes((self.folder / file).read_bytes())
        self.fetched.append(file)
        return self.snapshot / file


@pytest.fixture
def reference():
    return made("Qwen2")


@pytest.fixture
def shelf(reference, tmp_path, monkeypatch):
    shelf = Shelf(saved(reference, tmp_path / "hub"), tmp_path / "cache")
    for odd in ("pytorch_model.bin", "consolidated.safetensors", "README.md", "run.py"):
        (shelf.folder / odd).write_bytes(b"never")
    monkeypatch.setattr(hub, "_HuggingFace", lambda: shelf)
    return shelf


def test_a_model_of_the_hub_is_the_model(shelf, reference):
    model = load_model(NAME, "float32")
    assert model.name == NAME
    assert worst(model, reference, prompt()) < 1e-4
    assert model_config(NAME) == model.config
    assert load_tokenizer(NAME).encode("abc") == model.tokenizer.encode("abc")


def test_only_config_tokenizer_and_safetensors_are_fetched_each_once(shelf):
    model_config(NAME)
    assert sorted(shelf.fetched) == ["config.json", "generation_config.json"]
    load_tokenizer(NAME)
    load_model(NAME, "float32")
    assert sorted(set(shelf.fetched)) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip


def test_what_is_cached_whole_needs_no_network(shelf):
    load_model(NAME, "float32")
    asked, shelf.fetched = shelf.asked, []
    load_model(NAME, "float32")
    load_tokenizer(NAME)
    assert (shelf.asked, shelf.fetched) == (asked, [])
    assert plan_download(NAME) is None


def test_a_cache_that_may_lack_a_file_is_used_when_the_hub_is_out_of_reach(shelf):
    load_model(NAME, "float32")
    shelf.absent.clear()  # as where another program filled the cache
    shelf.reachable = False
    said: list[str] = []
    load_model(NAME, "float32", progress=said.append)
    assert any("cannot be reached; going on with what is cached" in s for s in said)
    (shelf.snapshot / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="cannot be reached"):
        load_model(NAME, "float32")


def test_a_plan_tells_the_bytes_that_are_missing(shelf):
    whole = plan_download(NAME)
    assert whole is not None
    weights = (shelf.folder / "model.safetensors").stat().st_size
    load_tokenizer(NAME)
    rest = plan_download(NAME)
    assert rest is not None
    assert whole.bytes > rest.bytes == weights


def test_shards_are_fetched_by_the_index(shelf):
    stored = load_file(shelf.folder / "model.safetensors")
    (shelf.folder / "model.safetensors").unlink()
    shards = {"a.safetensors": sorted(stored)[::2], "b.safetensors": sorted(stored)[1::2]}
    for file, names in shards.items():
        save_file({n: stored[n] for n in names}, shelf.folder / file)
    save_file({"x": stored[sorted(stored)[0]]}, shelf.folder / "other.safetensors")
    index = {"weight_map": {n: file for file, names in shards.items() for n in names}}
    (shelf.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    load_model(NAME, "float32")
    assert "b.safetensors" in shelf.fetched
    assert "other.safetensors" not in shelf.fetched
    for map_of in ({"x": "../../a.safetensors"}, {"x": "a.bin"}, {}):
        (shelf.folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": map_of})
        )
        shelf.revision += "'"
        with pytest.raises(ModelError, match="is not an index of weight files"):
            load_model(NAME)


def test_large_files_are_announced(shelf, monkeypatch):
    monkeypatch.setattr(hub, "_TOLD_BYTES", 10_000)
    said: list[str] = []
    load_model(NAME, "float32", progress=said.append)
    assert any("downloading model.safetensors of hf:someone/tiny (0." in s for s in said)


def test_a_model_that_changes_while_it_is_fetched_is_not_mixed(shelf, monkeypatch):
    fetch = shelf.fetch

    def later(name, file):
        shelf.revision = "two" if file == "model.safetensors" else "one"
        return fetch(name, file)

    monkeypatch.setattr(shelf, "fetch", later)
    with pytest.raises(ModelError, match="was changed while it was downloaded: start again"):
        load_model(NAME)


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("config.json", "there is no config.json in it"),
        ("tokenizer.json", "there is no tokenizer.json in it"),
        ("model.safetensors", r"no model.safetensors in it \(it holds .bin, .safetensors files\)"),
    ],
)
def test_what_a_model_lacks_is_named(shelf, gone, says):
    (shelf.folder / gone).unlink()
    with pytest.raises(ModelError, match=says):
        load_model(NAME)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:gpt2", "hf:a/b/c", "hf:a/b@", "hf:a b/c", "hf:../x", "hf:a/b@../x"]
)
def test_names_that_are_none_say_how_one_looks(name):
    with pytest.raises(ModelError, match="expected hf:org/name or hf:org/name@revision"):
        load_model(name)


def test_names_are_taken_apart():
    assert hub.parse("hf:a/b@v1/x") == hub.HubName("a/b", "v1/x")
    assert str(hub.parse("hf:a/b")) == NAME.replace("someone/tiny", "a/b")
    assert str(hub.parse("hf:a/b@v1")) == "hf:a/b@v1"


def response(status: int):
    return httpx.Response(status, request=httpx.Request("GET", "https://example.invalid"))


FAILURES = {
    "is gated: accept its terms": errors.GatedRepoError("no", response=response(403)),
    "is not found: check the spelling": errors.RepositoryNotFoundError(
        "no", response=response(401)
    ),
    "has no revision 'v9'": errors.RevisionNotFoundError("no", response=response(404)),
    "HF_HUB_OFFLINE forbids": errors.OfflineModeIsEnabled("no"),
    r"refused \(HfHubHTTPError: slow": errors.HfHubHTTPError("slow", response=response(429)),
    r"cannot be reached \(LocalEntryNot": errors.LocalEntryNotFoundError("no"),
    r"cannot be reached \(ConnectionError: r": ConnectionError("refused"),
    r"cannot be reached \(HTTPError": errors.HfHubHTTPError.__bases__[0]("no route"),
    r"cannot be reached \(RuntimeError: xet": RuntimeError("xet failed"),
    "cache is full: free space there": OSError(errno.ENOSPC, "No space left on device"),
    r"cannot be written \(PermissionError.*HF_HOME": PermissionError(errno.EACCES, "no", "/c"),
}


@pytest.mark.parametrize("says", FAILURES)
def test_each_failure_of_the_hub_has_its_sentence(says, monkeypatch):
    def fail(*_, **__):
        raise FAILURES[says]

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(ModelError, match=says) as e:
        load_model("hf:someone/tiny@v9")
    assert "\n" not in str(e.value)


def test_the_librarys_answers_are_read(monkeypatch, tmp_path):
    sizes = [SimpleNamespace(rfilename="a", size=5), SimpleNamespace(rfilename="b", size=None)]
    asked: list[tuple] = []

    def info(self, repo, revision, files_metadata):
        asked.append((repo, revision, files_metadata))
        return SimpleNamespace(siblings=sizes)

    def download(repo, file, revision):
        if file == "none":
            raise errors.RemoteEntryNotFoundError("no", response=response(404))
        return str(tmp_path / file)

    found = {"a": str(tmp_path / "a"), "none": object(), "new": None}
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda repo, file, revision: found[file]
    )
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    library, name = hub._HuggingFace(), hub.HubName("a/b", "v1")
    assert library.files(name) == {"a": 5, "b": 0}
    assert asked == [("a/b", "v1", True)]
    assert library.fetch(name, "a") == tmp_path / "a"
    assert library.fetch(name, "none") is hub.Absent.ABSENT
    assert [library.cached(name, f) for f in ("a", "none", "new")] == [
        tmp_path / "a", hub.Absent.ABSENT, None,
    ]  # fmt: skip
