"""Service charged by tenant, as replicas tell it to one another through the front. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.proto import tenantscope_pb2 as pb


def to_proto(charges: Mapping[str, float]) -> pb.Charges:
    return pb.Charges(tenants=[pb.TenantCharge(tenant=t, service=s) for t, s in charges.items()])


def of_proto(message: pb.Charges) -> dict[str, float]:
    """What is said of a tenant more than once adds up."""
    found: dict[str, float] = {}
    for charge in message.tenants:
        found[charge.tenant] = found.get(charge.tenant, 0.0) + charge.service
    return found
