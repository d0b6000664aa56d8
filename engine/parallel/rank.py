"""The process of a rank but the first: loads the model, keeps its part, follows rank 0. Owns the
process's life; started by `engine.parallel.ranks`, and ends with whoever started it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from engine.collector import few_collections
from engine.errors import EngineError
from engine.parallel.wire import Channel, Here, Ready, Start
from engine.serving.device import settle
from engine.serving.launch import READY, say, say_progress
from engine.threads import bound_spinning


def run_rank(steps: Channel, loads: Channel) -> None:
    """From the start order to the end of the channels. Raises EngineError."""
    start: Start = steps.recv()
    settle(start.pool, start.replica, start.rank)  # before torch

    from engine.model.loaders import load_model
    from engine.parallel.cut import Cut
    from engine.parallel.follower import Follower
    from engine.parallel.model import cut_model
    from engine.parallel.sums import Sums
    from engine.runner.torch_runner import TorchRunner

    meeting = start.meeting
    whole = load_model(start.model, start.dtype, progress=say_progress)
    part = cut_model(whole, Cut(start.rank, meeting.of))
    del whole
    steps.send(Here(part.hash))
    steps.recv()  # Meet
    sums = Sums(meeting, start.rank)
    runner = TorchRunner(part, start.pages, start.page_tokens, join=sums)
    steps.send(Ready(runner.page_bytes))
    say(READY)
    follower = Follower(runner, steps, loads)
    follower.start_loading(_end)
    with few_collections():  # all ranks wait for the slowest
        follower.follow()


def _end(error: Exception) -> None:
    """From any thread: rank 0 sees the channels close."""
    with contextlib.suppress(OSError):  # whoever would read it may be gone
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    # Its end is rank 0's to say: a signal to a whole group of processes would end this one while
    # rank 0 still brings its answers to an end.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    bound_spinning()
    links = [socket.socket(fileno=int(fd)) for fd in sys.argv[1:3]]
    try:
        run_rank(*map(Channel, links))
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(1)
    except Exception as e:  # in a step: a group that is broken must not be waited for at exit
        _end(e)
    # Without taking the group and torch apart first: that takes seconds on a busy machine, and rank
    # 0 waits for the end.
    os._exit(0)


if __name__ == "__main__":
    main()
