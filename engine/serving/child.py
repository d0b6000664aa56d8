"""Runs a module as a child that does not outlive its parent.

`python -m engine.serving.child FD MODULE ARGS...`: FD is the reading end of a pipe whose other
end only the parent holds. When it closes, the parent is gone, however it died: the child gets
SIGTERM and, should that not do, is ended. (The kernel's own parent-death signal follows the
*thread* that forked, and a console starts children from a thread that ends.)
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

GRACE_S = 5.0


def watch_parent(fd: int, grace_s: float = GRACE_S) -> None:
    """Start the watch; returns at once."""

    def watch() -> None:
        # A signal may be given to any thread that does not block it: this one must not take what
        # the child's own code waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        while os.read(fd, 64):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main() -> None:
    fd, module = int(sys.argv[1]), sys.argv[2]
    watch_parent(fd)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
