"""HTTP/1.1 on the way out: h11's rules, with less work a piece. Owns no socket.

The bytes are h11's own, joined otherwise: a response's head goes out together with what follows it,
and a piece of a chunked body is framed here, for it changes nothing of the connection's state.
"""

from __future__ import annotations

import h11

_CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"


class Wire(h11.Connection):
    """The server's side of one connection."""

    def __init__(self, most_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=most_head_bytes)
        self._head = b""  # not sent yet
        self._chunked = False

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # its overloads
        """As h11's, but that a head comes with the next event. Raises LocalProtocolError."""
        if type(event) is h11.Data and self._chunked and self.our_state is h11.SEND_BODY:
            data = event.data
            return self._with_head(b"%x\r\n%b\r\n" % (len(data), data) if data else b"")
        said = super().send(event)
        if type(event) is h11.Response and said is not None:
            self._head = said
            self._chunked = _CHUNKED in said.lower()
            return b""
        return said if said is None and not self._head else self._with_head(said or b"")

    def _with_head(self, said: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + said
