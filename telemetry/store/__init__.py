"""The store: a folder of day files, its one writer, its upkeep."""
