"""`read_trace`: one door to all trace formats. Owns the list of them; reads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engine.errors import WorkloadError
from engine.simulation.traces.azure import azure
from engine.simulation.traces.mooncake import mooncake
from engine.simulation.traces.servegen import servegen
from engine.simulation.traces.trace import Trace, TraceOptions
from engine.simulation.traces.vtc import vtc

FORMATS: Mapping[str, Callable[[Path, TraceOptions], Trace]] = {
    "azure": azure,
    "mooncake": mooncake,
    "servegen": servegen,
    "vtc": vtc,
}


def read_trace(path: Path, form: str, options: TraceOptions | None = None) -> Trace:
    """A trace to iterate over; rows are read as they are asked for. `Trace.report` tells what
    was kept and dropped, and what the reader made up.

    Raises WorkloadError for an unknown format, a file that cannot be read or is not of that
    format, and options out of range; while iterating, for a bad row when `strict`.
    """
    options = options or TraceOptions()
    options.check()
    if form not in FORMATS:
        raise WorkloadError(f"trace format {form!r}: expected one of {', '.join(FORMATS)}")
    if not path.exists():
        raise WorkloadError(f"{path}: no such file or folder")
    if path.is_dir() != (form == "servegen"):
        expected = "a folder of chunk-N-trace.csv files" if form == "servegen" else "a file"
        raise WorkloadError(f"{path}: a trace of format {form} is {expected}")
    try:
        trace = FORMATS[form](path, options)
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: a trace of format {form} is UTF-8 text") from None
    except OSError as e:
        raise WorkloadError(f"{e.filename or path}: cannot be read: {e.strerror}") from None
    trace.source = str(path)
    return trace
