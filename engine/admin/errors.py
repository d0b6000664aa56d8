"""What an operator's act can meet, one exception a kind. Owns no behaviour."""

from __future__ import annotations

from engine.errors import EngineError


class ChangeRefused(EngineError):
    """A change that cannot be made; says which value and what may stand there."""


class VersionMoved(EngineError):
    """Somebody else has changed something since the caller looked."""


class GivenUp(EngineError):
    """Whoever asked is gone; nothing was changed."""


class WorkerSilent(EngineError):
    """A worker does not answer. Trying later can help."""

    exit_code = 3


class FrontSilent(EngineError):
    """The HTTP loop is stuck. Trying later can help."""

    exit_code = 3


class OverlayLost(EngineError):
    """The file cannot be read as an overlay, or not be written."""
