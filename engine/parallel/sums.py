"""The sum over ranks that ends each half of a layer: one rank's end of a torch.distributed group.

Owns the process group and nothing else. Every call has an end: a rank that is gone or silent is an
error here, never a wait without one.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from engine.errors import RankError
from engine.parallel.wire import Meeting


class Sums:
    """This process's only group (torch keeps one default group a process)."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        """Blocks until all ranks are there, for the meeting's time at most. Raises RankError when
        one does not come."""
        # Ranks are on one machine: without a name for itself gloo would look for its address.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            dist.init_process_group(
                meeting.backend,
                init_method=f"file://{meeting.file}",
                rank=rank,
                world_size=meeting.of,
                timeout=timedelta(seconds=meeting.timeout_s),
            )
        except (RuntimeError, ValueError) as e:
            raise RankError(f"rank {rank} of {meeting.of} met not all of the others: {e}") from e

    def __call__(self, tensor: torch.Tensor) -> None:
        """tensor := its sum over the ranks, in place, in the tensor's own dtype. Raises
        RuntimeError when a rank has gone, or has not come within the meeting's time."""
        dist.all_reduce(tensor)

    def close(self) -> None:
        dist.destroy_process_group()
