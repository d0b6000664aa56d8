"""The store's process: its doors, who may come in, and the client that knocks."""
