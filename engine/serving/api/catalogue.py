"""Which model names a tenant may say. Owns names; knows no weights.

A name that is unknown, mistyped or another tenant's gets one and the same 404: the answer must
not tell whether somebody else's adapter exists, and must never be the base model instead.
"""

from __future__ import annotations

from pathlib import PurePath

from engine.config import Settings, Tenant
from engine.errors import ConfigError
from engine.serving.api.openai import model_not_found


def base_model_name(settings: Settings) -> str:
    """The base model's public name: a folder is called by its last part, not by its path."""
    return PurePath(settings.model).name or settings.model


class Catalogue:
    """The base model and every tenant's adapters. Raises ConfigError when two names collide."""

    def __init__(self, settings: Settings) -> None:
        self.base = base_model_name(settings)
        if any(name == self.base for name, _ in settings.adapters):
            raise ConfigError(
                f"an [[adapter]] is named {self.base!r} like the base model: rename the adapter, "
                "or callers could not say which they mean"
            )

    def adapter(self, model: str, tenant: Tenant) -> str | None:
        """The adapter `model` names, None for the base model. Raises ApiError (404)."""
        if model == self.base:
            return None
        if model in tenant.adapters:
            return model
        raise model_not_found(model)

    def parent(self, model: str, tenant: Tenant) -> str | None:
        """What `model` is made of, None for the base model. Raises ApiError (404)."""
        return None if self.adapter(model, tenant) is None else self.base

    def models(self, tenant: Tenant) -> list[tuple[str, str | None]]:
        """(name, parent) of what `tenant` may ask for; the base model first."""
        return [(self.base, None), *((name, self.base) for name in tenant.adapters)]
