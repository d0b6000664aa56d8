"""Acting on an engine from the console: what may be changed, by a form, tried first, taken back."""
