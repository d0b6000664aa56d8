"""Regenerates the protobuf modules: `python -m telemetry.proto.generate` (needs grpcio-tools)."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path


def generate(target: Path | None = None) -> None:
    """Write *_pb2.py, *_pb2.pyi and *_pb2_grpc.py under `target` (default: the source tree)."""
    from grpc_tools import protoc

    root = Path(__file__).resolve().parents[2]
    well_known = str(resources.files("grpc_tools") / "_proto")
    out = str(target or root)
    code = protoc.main(
        [
            "protoc",
            f"-I{root}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            "telemetry/proto/tenantscope.proto",
        ]
    )
    if code:
        sys.exit(code)


if __name__ == "__main__":
    generate()
