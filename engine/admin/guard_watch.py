"""Watches the store's incidents for the guard rails. Owns a thread and its stream; judges nothing.

Whatever happens to the store, serving goes on: the stream is opened again after a pause, and what
was missed is asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from engine.admin.act import Act
from engine.admin.desk import AdminDesk
from engine.admin.errors import VersionMoved
from engine.admin.guard import WHO, Cap, Held, held, judge
from engine.errors import EngineError
from telemetry.errors import StoreError
from telemetry.instants import unix_seconds
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service.client import StoreClient
from telemetry.tables import TABLES

KIND = "incident_state"
_AGAIN_S = 5.0
_STOP_S = 0.3
_REMEMBERED = 1_000
_log = logging.getLogger(__name__)
_AT = TABLES["event"].column_names.index("at")
_DETAIL = TABLES["event"].column_names.index("detail")


@dataclass(frozen=True, slots=True)
class Seen:
    """An incident's state, and when it was written (unix seconds)."""

    at: float
    detail: str


class IncidentTail(StoreClient):
    """The store's incidents as they change."""

    def states(self, since_unix_s: float) -> Iterator[Seen]:
        """From that instant on, until the stream ends. Raises StoreError."""
        call = self._channel.unary_stream(
            "/tenantscope.v1.Store/Tail",
            request_serializer=pb.TailRequest.SerializeToString,
            response_deserializer=pb.TailRow.FromString,
        )
        request = pb.TailRequest(kinds=[KIND], from_unix_s=since_unix_s)
        try:
            for said in call(request, metadata=self.metadata(), wait_for_ready=True):
                values = said.row.values
                if said.table == "event" and len(values) > max(_AT, _DETAIL):
                    yield Seen(unix_seconds(values[_AT].integer), values[_DETAIL].text)
        except grpc.RpcError as e:
            raise StoreError(f"{self.address}: {e.code().name.lower()}: {e.details()}") from None


class Guarding:
    """What is done about an incident: one look at each change of it."""

    def __init__(self, desk: AdminDesk) -> None:
        self._desk = desk
        self._said: dict[tuple[str, str], None] = {}  # (incident, tenant) of dry runs, oldest first

    def look(self, detail: str) -> Cap | str:
        """Judge an incident's state and, where the settings say so, cap. Raises EngineError when
        the cap could not be put in force."""
        try:
            found = held(detail)
        except ValueError as e:
            return str(e)
        desk = self._desk
        while True:
            state = desk.state
            guard, overlay = state.base.guard, state.overlay
            verdict = judge(found, guard, state.in_force, overlay)
            if guard.mode == "off" or isinstance(verdict, str):
                return verdict
            if guard.mode == "dry-run":
                return self._would(found, verdict)
            # Of the version judged: a limit lowered meanwhile must not be raised by the cap.
            act = Act(WHO, verdict.why, if_version=overlay.version, ttl_s=guard.ttl_s)
            try:
                done = desk.set_tenant(act, verdict.tenant, dict(verdict.words), cap=True)
            except VersionMoved:
                continue
            if not done.ok:
                raise EngineError(done.detail)
            _log.warning("guard rail: %s (%s)", done.effect, verdict.why)
            return verdict

    def _would(self, found: Held, cap: Cap) -> Cap:
        mark = (found.incident, cap.tenant)
        if mark not in self._said:
            self._said[mark] = None
            if len(self._said) > _REMEMBERED:
                del self._said[next(iter(self._said))]
            limits = ", ".join(f"{key} {value}" for key, value in cap.words.items())
            what = f"would cap tenant {cap.tenant!r}: {limits}"
            self._desk.note(Act(WHO, cap.why), what)
            _log.warning("guard rail: %s (%s)", what, cap.why)
        return cap


class GuardWatch:
    """`start` when the desk is there, `close` before it goes."""

    def __init__(self, store_address: str, desk: AdminDesk, now: Callable[[], float]) -> None:
        self._guarding = Guarding(desk)
        self._now = now
        self._store_address = store_address
        self._closing = threading.Event()
        self._client: IncidentTail | None = None
        self._turn = threading.Lock()  # a stream is opened, or all of it is closing
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Bounded: the stream breaks when its channel closes."""
        with self._turn:
            self._closing.set()
            if self._client is not None:
                self._client.close()
        self._thread.join(_STOP_S)

    def _watch(self) -> None:
        since, said = self._now(), ""
        while not self._closing.is_set():
            try:
                with self._turn:
                    if self._closing.is_set():
                        return
                    self._client = client = IncidentTail(self._store_address)
                try:
                    for seen in client.states(since):
                        since, said = max(since, seen.at), ""
                        self._look(seen.detail)
                finally:
                    client.close()
            except (StoreError, ValueError) as e:  # ValueError: closed while it was opened
                if not self._closing.is_set() and str(e) != said:
                    said = str(e)
                    _log.warning("guard rails see no incidents now: %s", e)
            self._closing.wait(_AGAIN_S)

    def _look(self, detail: str) -> None:
        try:
            self._guarding.look(detail)
        except Exception as e:  # one odd incident must not end the watch over the others
            _log.error("guard rail: the cap could not be put in force: %s", e)
