"""Runs a module as a child that does not outlive its parent, and gives signs of life.

`python -m engine.serving.child FD MODULE ARGS...`: FD is one end of a pair of sockets whose other
end only the parent holds. A byte a second goes there. When it closes, the parent is gone, however
it died: the child gets SIGTERM and, should that not do, is ended. A child that is stopped (SIGSTOP)
could do none of this, so the kernel is asked to let it go on when its parent dies. (A signal that
ended it would not do in place of that: the kernel sends it when the *thread* that forked ends, and
a console starts children from a thread that does.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import socket
import sys
import threading
import time

GRACE_S = 5.0
BEAT_S = 1.0
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def watch_parent(link: socket.socket, grace_s: float = GRACE_S, beat_s: float = BEAT_S) -> None:
    """Start the watch and the beat; returns at once. `link` is the thread's from now on."""
    link.settimeout(beat_s)

    def watch() -> None:
        # A signal may be given to any thread that does not block it: this one must not take what
        # the child's own code waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        while _is_there(link):
            with contextlib.suppress(OSError):  # full: the parent is stopped; closed: seen next
                link.send(b".")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _is_there(link: socket.socket) -> bool:
    """Wait for a beat's time, or until the parent is gone."""
    try:
        return bool(link.recv(64))
    except TimeoutError:
        return True
    except OSError:  # gone, with beats unread
        return False


def go_on_when_parent_dies() -> None:
    """Who is stopped then is woken up, and finds out; to who is not it is nothing."""
    with contextlib.suppress(OSError, AttributeError):  # not this system's
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def main() -> None:
    fd, module = int(sys.argv[1]), sys.argv[2]
    go_on_when_parent_dies()
    watch_parent(socket.socket(fileno=fd))
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
