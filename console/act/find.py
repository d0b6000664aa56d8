"""Which operators' doors belong to what the console looks at. Opens none.

A `serve` has its door in its runtime folder, beside its store's and worker's sockets.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from telemetry.service import listen
from telemetry.source import live_addresses

SOCKET = "admin.sock"


def doors_beside(where: str) -> tuple[str, ...]:
    """The operator's socket beside the live processes behind a store's folder, a runtime folder or
    an address; none where nothing is live, or it is on another machine."""
    found = []
    for address in live_addresses(where):
        if not address.startswith(listen.UNIX):
            continue
        path = Path(address.removeprefix(listen.UNIX)).parent / SOCKET
        try:
            is_socket = stat.S_ISSOCK(path.lstat().st_mode)
        except OSError:
            continue  # that store is nobody's, or a `collect`'s
        if is_socket:
            found.append(f"{listen.UNIX}{path}")
    return tuple(dict.fromkeys(found))


def why_closed(where: str, recorded: bool) -> str:
    """Why nothing can be changed, where no door is given and none was found."""
    if recorded:
        return "read-only: a recording cannot be changed"
    return (
        f"read-only: no operator's socket lies beside {where}; name the engine's with "
        "--admin unix:/path/admin.sock (`tenantscope serve` prints it)"
    )


def addresses(given: Sequence[str], where: str, recorded: bool) -> tuple[str, ...]:
    """Those that were given, else those beside a live place."""
    if given or recorded:
        return tuple(dict.fromkeys(given))
    return doors_beside(where)
