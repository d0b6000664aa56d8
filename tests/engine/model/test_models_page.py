"""The page of models names every key that is refused."""

from __future__ import annotations

from pathlib import Path

from engine.model import gguf_config, hf_config

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def test_the_page_names_every_refused_key_and_served_family():
    page = PAGE.read_text(encoding="utf-8")
    named = [*hf_config._NEUTRAL, *hf_config._FAMILIES, *gguf_config._NEUTRAL]
    assert [key for key in (*named, *gguf_config.ARCHITECTURES) if f"`{key}`" not in page] == []
