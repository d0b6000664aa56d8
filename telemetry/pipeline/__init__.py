"""The way out of front and worker: encode, keep, send, send again."""
