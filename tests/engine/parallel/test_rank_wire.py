"""What goes between ranks: the same batch on each, and an end that is never waited past."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.parallel.wire import Channel, Drop, channels, packed, rows_of, segments_of
from engine.runner.batch import build_batch
from engine.scheduling.plan import Segment

SIZE = 16


@st.composite
def segment(draw) -> Segment:
    start, count = draw(st.integers(0, 60)), draw(st.integers(1, 40))
    pages = -(-(start + count) // SIZE) + draw(st.integers(0, 3))  # some are held ahead
    return Segment(
        draw(st.text(max_size=3)),
        draw(st.sampled_from("abc")),
        draw(st.sampled_from([None, "x" * 64, "y" * 64])),
        tuple(draw(st.lists(st.integers(0, 500), min_size=count, max_size=count))),
        start,
        tuple(range(100, 100 + pages)),
        draw(st.booleans()),
        count > 1,
        temperature=0.7,
    )


@settings(max_examples=40)
@given(st.lists(segment(), min_size=1, max_size=6))
def test_every_rank_builds_the_same_batch_from_what_it_is_told(segments: list[Segment]) -> None:
    ours = build_batch(segments, SIZE)
    theirs = build_batch(segments_of(rows_of(segments, SIZE)), SIZE)
    assert theirs.tokens.tolist() == ours.tokens.tolist()
    assert theirs.last.tolist() == ours.last.tolist()
    assert theirs.lora == ours.lora
    for part in ("first_row", "start", "first_page", "pages"):
        assert getattr(theirs.rows, part) == getattr(ours.rows, part)


def test_nothing_of_a_request_but_its_work_is_told() -> None:
    told = Segment("secret-id", "acme", None, (1, 2), 0, (7, 8, 9), True, True, seed=4242)
    said = packed(rows_of([told], SIZE))
    assert b"secret-id" not in said
    assert b"acme" not in said
    assert rows_of([told], SIZE)[0].pages == (7,)


def test_messages_and_images_come_whole_and_in_order() -> None:
    near, far_link = channels()
    far, image, room = Channel(far_link), bytes(range(256)) * 4096, bytearray(256 * 4096)

    def send() -> None:
        near.send(Drop("a", 1), memoryview(image))
        near.send(Drop("b", 2))
        near.close()

    sender = threading.Thread(target=send)
    sender.start()
    assert far.recv() == Drop("a", 1)
    far.recv_into(memoryview(room))
    assert bytes(room) == image
    assert far.recv() == Drop("b", 2)
    sender.join()
    with pytest.raises(EOFError):
        far.recv()


@pytest.mark.parametrize("kept", [3, 20])
def test_a_channel_that_closes_within_a_message_is_at_its_end(kept: int) -> None:
    near, far_link = channels()
    near.post(packed(Drop("a", 1))[:kept])
    near.close()
    with pytest.raises(EOFError):
        Channel(far_link).recv()


def test_who_is_silent_for_longer_than_agreed_is_an_error() -> None:
    near, far_link = channels()
    near.patient(0.01)
    with far_link, pytest.raises(TimeoutError):
        near.recv()
