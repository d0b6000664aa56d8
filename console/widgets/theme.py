"""The console's colours: quiet greys, and colour only where something wants to be looked at."""

from __future__ import annotations

from textual.theme import Theme

THEME = Theme(
    name="tenantscope",
    primary="#7aa2c9",
    secondary="#8fb8a8",
    accent="#d9a662",
    warning="#d9a662",
    error="#e57a84",
    success="#86b88a",
    foreground="#c3cad3",
    background="#0f1216",
    surface="#171c22",
    panel="#1d232b",
    dark=True,
)
# Named by the stylesheet; any theme may set its own.
OWN_COLOURS = {
    "text-quiet": "#8592a3",
    "text-label": "#a3afbd",
    "text-value": "#e3e8ee",
    "line": "#2f3843",
    "tint-hurt": "#2a181d",
    "tint-named": "#29221a",
    "tint-banner": "#54252c",
    "tint-cursor": "#1a2a40",
    "series-1": "#6f9fd0",
    "series-2": "#a98bd0",
    "series-3": "#6fb3a6",
    "series-4": "#d09a6f",
}
