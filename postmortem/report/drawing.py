"""Draws charts with vl-convert: Vega-Lite to Vega, to SVG, and the code that draws them in a page.

The one place that calls it; nothing here reaches the network. The code is made once for a version
of vl-convert and kept in the user's cache: making it takes seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Only the part of Vega that draws: Vega-Lite was compiled away before. The address is the name by
# which vl-convert has the module inside; nothing is fetched.
_SNIPPET = (
    'import {{parse,View}} from "https://cdn.jsdelivr.net/npm/vega@{version}/+esm";'
    "window.tenantscopeVega={{parse,View}};"
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart as a Vega specification for a page, and as a still picture."""

    vega: Mapping[str, Any]
    svg: str


def draw(spec: Mapping[str, Any]) -> Drawn:
    """Raises ValueError where the specification is wrong."""
    import vl_convert

    text = json.dumps(spec, allow_nan=False)
    vega = vl_convert.vegalite_to_vega(text)
    return Drawn(vega, vl_convert.vega_to_svg(json.dumps(vega)))


def png(spec: Mapping[str, Any], scale: float = 1.0) -> bytes:
    """The same picture in points, for who cannot show SVG."""
    import vl_convert

    made: bytes = vl_convert.vegalite_to_png(json.dumps(spec), scale=scale)
    return made


def runtime(say: Callable[[str], None] = lambda text: None) -> str:
    """The JavaScript that draws Vega specifications, about 580 kB. `say` is told when it has to be
    made first. A cache that cannot be written is done without. Raises RuntimeError where this
    version of vl-convert cannot make it."""
    folder = cache_folder()
    if folder is None:
        return bundle() + _END
    kept = folder / f"vega-{version('vl-convert-python')}-1.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = kept.read_text(encoding="utf-8")
        if text.endswith(_END):
            return text
    say(f"making the code that draws charts, once; it is kept in {kept.parent}")
    made = bundle() + _END
    with contextlib.suppress(OSError):
        _keep(kept, made)
    return made


def bundle() -> str:
    """The code, made anew. Raises RuntimeError where it cannot be."""
    import vl_convert

    snippet = _SNIPPET.format(version=vl_convert.get_vega_version())
    made: str = vl_convert.javascript_bundle(snippet)
    return made


_END = "\n/* tenantscope: whole */"


def cache_folder() -> Path | None:
    """None for a user without a home. (Not in a folder of everybody's: what lies in the cache is
    put into reports as it is.)"""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "tenantscope"
    try:
        return Path.home() / ".cache" / "tenantscope"
    except RuntimeError:
        return None


def _keep(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".vega-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
