"""The engine's exception tree. Every message says what was wrong, with which value, what to do."""

from __future__ import annotations


class EngineError(Exception):
    """Anything the engine refuses or fails at, worded for the person who meets it."""


class ConfigError(EngineError):
    """A setting is missing, unknown or out of range; names file, key and value."""


class ModelError(EngineError):
    """A model cannot be had or is not supported."""


class AdapterError(EngineError):
    """An adapter folder is refused; names the folder and the cause."""


class WorkloadError(EngineError):
    """A workload file is malformed; names file, key and value."""


class RankError(EngineError):
    """A rank of a tensor-parallel worker did not start, has ended, or is silent."""
