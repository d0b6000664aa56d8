"""The report in words: all its sections, in their order."""

from __future__ import annotations

from datetime import tzinfo

from postmortem.report import told_after, told_cause, told_data, told_incident
from postmortem.report.document import Section
from postmortem.report.model import Report
from telemetry.plain import clock
from telemetry.verdict import when


def document(report: Report, zone: tzinfo | None = None) -> tuple[Section, ...]:
    """All sections of a report; times are in `zone` (None = the machine's)."""
    return (
        told_incident.summary(report, zone),
        told_incident.impact(report),
        told_incident.timeline(report, zone),
        told_cause.curve(report, zone),
        told_cause.waits(report),
        told_cause.holders(report, zone),
        told_cause.matrix(report),
        told_cause.causes(report),
        told_cause.profile(report),
        told_after.worst(report, zone),
        told_incident.detection(report, zone),
        told_after.what_if(report),
        told_after.actions(report),
        told_data.minutes(report, zone),
        told_data.coverage(report, zone),
        told_data.reconciled(report),
        told_after.questions(report),
        told_data.words(report),
        told_after.appendix(report),
    )


def title(report: Report, zone: tzinfo | None = None) -> str:
    span = f"{when(report.start, zone)} to {clock(report.end, zone)}"
    reader = f", for {report.one_for}" if report.one_for is not None else ""
    return f"Postmortem: pool {report.pool}, {span}{reader}"
