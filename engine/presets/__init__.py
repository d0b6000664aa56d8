"""Settings files to begin with: TOML beside this file, read as any other. Owns no key of them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from engine.config import Settings, read_settings
from engine.errors import ConfigError

_END = ".toml"


def names() -> tuple[str, ...]:
    """Which there are."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(_END) for f in files if f.name.endswith(_END)))


def text(name: str) -> str:
    """The file, comments and all. Raises ConfigError for a name there is none of."""
    if name not in names():
        raise ConfigError(f"preset {name!r}: there are {', '.join(names())}")
    return resources.files(__name__).joinpath(name + _END).read_text("utf-8")


def title(name: str) -> str:
    """Its first line."""
    return text(name).partition("\n")[0].lstrip("# ")


def settings(name: str) -> Settings:
    """What it says. Raises ConfigError."""
    text(name)
    with resources.as_file(resources.files(__name__).joinpath(name + _END)) as path:
        return read_settings(Path(path))
