"""What is written down: the ledger of a worker and its parts, and the front's own book."""
