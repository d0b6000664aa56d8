"""What the system refuses when processes are started: no room, no more of them, no more files.

Owns the words and what to do about it; starts nothing.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from engine.serving.process import ServeError

_ROOM = "; make room, or set TMPDIR"
_MORE = "; more processes and threads must be allowed (ulimit -u; TasksMax= in a systemd unit)"
_FILES = "; more open files must be allowed (ulimit -n; LimitNOFILE= in a systemd unit)"
_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS), _ROOM),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM), _MORE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _FILES),
}


@contextlib.contextmanager
def in_a_sentence() -> Iterator[None]:
    """What the system refuses meanwhile, as a ServeError."""
    try:
        yield
    except OSError as e:
        where = f" ({e.filename})" if e.filename else ""
        hint = _HINTS.get(e.errno or 0, "")
        raise ServeError(f"cannot start: {e.strerror or e}{where}{hint}") from e
    except RuntimeError as e:
        if "start new thread" not in str(e):
            raise
        raise ServeError(f"cannot start: {e}{_HINTS[errno.EAGAIN]}") from e
