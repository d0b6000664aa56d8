"""What a caller waited for, told to who asks, and to nobody else."""

from __future__ import annotations

import pytest
from front_bench import bench
from serving_fakes import WAITS

from engine.serving.api.waits import REASONS, header_of


@pytest.mark.parametrize("stream", [False, True])
def test_waits_by_reason_are_told_to_who_asks(stream: bool) -> None:
    with bench() as (b, client):
        told = b.post(client, stream=stream, headers={"x-tenantscope-waits": "1"})
        untold = b.post(client, stream=stream)
    seconds = {reason: float(told.headers[header_of(reason)]) for reason in REASONS}
    assert seconds == {"front": 0.0} | WAITS._asdict()
    assert not [name for name in untold.headers if name.startswith("x-tenantscope-wait")]
    assert [a.tell_waits for a in b.core.asks] == [True, False]
