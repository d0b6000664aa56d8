"""Is the attribution right? Random incidents, their truth by replay, ours beside four rivals.

python -m benchmarks.attribution --incidents 20 --seed 0
"""
