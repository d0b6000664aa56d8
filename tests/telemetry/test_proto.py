"""The generated protobuf modules are what the .proto file says."""

from __future__ import annotations

from pathlib import Path

import pytest

import telemetry.proto


def test_generated_modules_have_not_drifted(tmp_path):
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    from telemetry.proto.generate import generate

    generate(tmp_path)
    here = Path(telemetry.proto.__file__).parent
    for made in (tmp_path / "telemetry" / "proto").glob("*_pb2*"):
        assert made.read_text() == (here / made.name).read_text(), made.name
