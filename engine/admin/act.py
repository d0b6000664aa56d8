"""What an operator's act says beside what it is, and whether it may be. Pure; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.admin.errors import ChangeRefused, GivenUp, VersionMoved
from engine.admin.overlay import Overlay
from engine.config import Settings

DEFAULT_TTL_S = 3_600.0
LONGEST_TTL_S = 366 * 86_400.0
LONGEST_TEXT = 500


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Act:
    """What every act says beside what it is. `wanted` False: whoever asked has given up."""

    who: str
    why: str = ""
    if_version: int = 0
    ttl_s: float = 0.0
    permanent: bool = False
    dry_run: bool = False
    engine: str = ""
    pool: str = ""
    wanted: Callable[[], bool] = field(default=_always, compare=False)


@dataclass(frozen=True, slots=True)
class Said:
    """What one worker said to an act, or why it said nothing (`silent`). `owed`: it is told once
    more, when it answers."""

    pool: str
    replica: int
    ok: bool
    detail: str
    silent: bool = False
    owed: bool = False

    @property
    def refused(self) -> bool:
        return not self.ok and not self.silent


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an act. `ok` False: a worker refused it, nothing has changed, and `detail`
    says why. `said`: the workers it concerned, in the order they were told."""

    version: int
    dry_run: bool
    effect: str
    until_unix_s: float | None
    ok: bool
    detail: str
    said: tuple[Said, ...] = ()


def check(act: Act, settings: Settings, overlay: Overlay) -> None:
    """Scope, words and version. Raises ChangeRefused, VersionMoved, GivenUp."""
    if not act.wanted():
        raise GivenUp("whoever asked did not wait for it: nothing was changed")
    if act.engine and act.engine != settings.engine:
        raise ChangeRefused(
            f"engine {act.engine!r}: this is {settings.engine!r}; nothing was changed"
        )
    pools = [p.name for p in settings.all_pools()]
    if act.pool and act.pool not in pools:
        there = ", ".join(map(repr, pools))
        raise ChangeRefused(f"pool {act.pool!r}: this engine serves {there}; nothing was changed")
    for name, text in (("who", act.who), ("reason", act.why)):
        if len(text) > LONGEST_TEXT or not text.isprintable():
            raise ChangeRefused(
                f"{name}: expected up to {LONGEST_TEXT} printable characters on one line"
            )
    if not act.who:
        raise ChangeRefused("who: say who makes the change; it is written down beside it")
    version = overlay.version
    if act.if_version and act.if_version != version:
        last = next((c for c in reversed(overlay.changes)), None)
        by = f" (last: {last.what}, by {last.who})" if last is not None else ""
        raise VersionMoved(
            f"version {act.if_version} is no longer in force, {version} is{by}: look again"
        )


def within(act: Act, pools: frozenset[str]) -> None:
    """Whether the act stays in the pool it was asked for. Raises ChangeRefused."""
    beside = sorted(pools - {act.pool})
    if act.pool and beside:
        also = ", ".join(map(repr, beside))
        raise ChangeRefused(
            f"pool {act.pool!r}: this concerns pool {also}; nothing was changed. Leave out "
            "--on-pool if that is meant"
        )


def leaves_nothing(act: Act) -> None:
    """For what is done once, or takes something back. Raises ChangeRefused: a span that was asked
    for and not kept would be a surprise when it is over."""
    if act.ttl_s or act.permanent:
        raise ChangeRefused(
            "this leaves nothing that could revert: leave out --ttl and --permanent"
        )


def until(act: Act, now_s: float) -> float | None:
    """When a change ends by itself. Raises ChangeRefused."""
    if act.permanent:
        if act.ttl_s:
            raise ChangeRefused("a change is permanent, or has a --ttl: not both")
        if not act.why.strip():
            raise ChangeRefused("a permanent change needs a --reason")
        return None
    ttl_s = act.ttl_s or DEFAULT_TTL_S
    if not 0 < ttl_s <= LONGEST_TTL_S:
        raise ChangeRefused(f"ttl {ttl_s:g} s: expected above 0 and at most {LONGEST_TTL_S:.0f} s")
    return now_s + ttl_s


def confined(folder: str, settings: Settings, config: Path | None) -> str:
    """The folder's real path, inside one that the settings stand in or name already. Raises
    ChangeRefused."""
    roots = [_real(Path(f).parent) for _, f in settings.adapters]
    if config is not None:
        roots.insert(0, _real(config.parent))
    if not roots:
        raise ChangeRefused(
            "this engine knows no folder to take adapters from: name one in the settings"
        )
    try:
        path = _real(roots[0] / folder)
        # What is still a link there is one of a circle.
        real = not any(p.is_symlink() for p in (path, *path.parents))
    except (OSError, ValueError):
        real = False
    if not real:
        raise ChangeRefused(f"folder {folder!r} is no path")
    if not any(path.is_relative_to(root) for root in roots):
        roofs = ", ".join(sorted({str(r) for r in roots}))
        raise ChangeRefused(f"folder {folder!r} is outside of where adapters may be: {roofs}")
    return str(path)


def _real(path: Path) -> Path:
    """Without links. Not `Path.resolve`: which Python it is decides what that says to a circle."""
    return Path(os.path.realpath(path))
