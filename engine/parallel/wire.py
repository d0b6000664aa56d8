"""What rank 0 and the other ranks say to one another, and the channel it goes by. No torch.

Both ends of a channel are processes of one worker, joined by a socket that only they hold: what is
read from it was written by the same code.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.config_pools import PoolSpec
from engine.scheduling.plan import Segment

if TYPE_CHECKING:
    from engine.model.lora import AdapterWeights

_SIZE = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ranks find each other: a file that all can open, how many they are, whose collectives
    they use, and how long any of these may take."""

    file: str
    of: int
    backend: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """All that a rank is told at its start. `pool` and `replica` are its worker's; `model` and
    `dtype` as `load_model` takes them; `pages` of `page_tokens` tokens are the arena's."""

    rank: int
    pool: PoolSpec
    replica: int
    model: str
    dtype: str
    pages: int
    page_tokens: int
    meeting: Meeting


@dataclass(frozen=True, slots=True)
class Here:
    """A rank has its part of the model with this hash."""

    model_hash: str


@dataclass(frozen=True, slots=True)
class Meet:
    """All have their parts: come to the meeting, nobody will be waited for there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A rank has its arena; a page of it has so many bytes."""

    page_bytes: int


class Row(NamedTuple):
    """What a rank needs of a `Segment`: the fields have the same meaning there."""

    adapter: str | None
    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Compute these, in this order, together with all ranks."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget the adapter, if it is still the copy of that number: a later one may be there."""

    key: str
    serial: int


@dataclass(frozen=True, slots=True)
class Load:
    """Copy a share into these pages. The image comes behind it, as bare bytes."""

    serial: int
    pages: tuple[int, ...]
    share: AdapterWeights


@dataclass(frozen=True, slots=True)
class Done:
    """A load is over; receiving and copying took so long. `refusal`: it was not taken."""

    serial: int
    took_s: float
    refusal: str | None = None


class Channel:
    """Values one way and the other, in order. One thread may send while another receives."""

    def __init__(self, link: socket.socket, timeout_s: float | None = None) -> None:
        """`timeout_s`: for each transfer; None waits without end, for who waits for orders."""
        self._link = link
        link.settimeout(timeout_s)

    def send(self, message: object, image: memoryview | None = None) -> None:
        """Raises OSError when the other end is gone, TimeoutError (an OSError) when it is slow."""
        self.post(packed(message))
        if image is not None:
            self._link.sendall(image)

    def post(self, message: bytes) -> None:
        """Send what was `packed`, once for all who are told the same. Raises as `send`."""
        self._link.sendall(message)

    def recv(self) -> Any:
        """Raises EOFError when the other end has closed, OSError as `send`."""
        head = bytearray(_SIZE.size)
        self.recv_into(memoryview(head))
        said = bytearray(_SIZE.unpack(head)[0])
        self.recv_into(memoryview(said))
        return pickle.loads(said)

    def recv_into(self, room: memoryview) -> None:
        """Fill `room` (bytes) with an image. Raises as `recv`."""
        while room:
            got = self._link.recv_into(room)
            if not got:
                raise EOFError("the other end is closed")
            room = room[got:]

    def patient(self, timeout_s: float | None) -> None:
        """How long a transfer may take from now on."""
        self._link.settimeout(timeout_s)

    def close(self) -> None:
        self._link.close()


def packed(message: object) -> bytes:
    """A message as it goes over a channel."""
    said = pickle.dumps(message, protocol=5)
    return _SIZE.pack(len(said)) + said


def channels() -> tuple[Channel, socket.socket]:
    """A new channel's end here, and the bare socket for the other process."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


def rows_of(segments: Sequence[Segment], page_tokens: int) -> tuple[Row, ...]:
    """Without what only rank 0 needs: whose they are, and how their tokens are drawn."""
    rows = []
    for s in segments:
        used = -(-(s.start + len(s.tokens)) // page_tokens)
        rows.append(Row(s.adapter, s.tokens, s.start, s.pages[:used]))
    return tuple(rows)


def segments_of(rows: Sequence[Row]) -> list[Segment]:
    """Segments of which no token is asked."""
    return [
        Segment(str(i), "", r.adapter, r.tokens, r.start, r.pages, False, len(r.tokens) > 1)
        for i, r in enumerate(rows)
    ]
