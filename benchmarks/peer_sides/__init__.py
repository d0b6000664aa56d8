"""The sides of `benchmarks/peers.py`: one file a contender, each run in a process of its own."""
