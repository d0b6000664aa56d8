"""Metrics and traces on their way to third parties."""
