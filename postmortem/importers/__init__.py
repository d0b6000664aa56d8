"""Others' request logs into a store's rows; what a log does not hold stays absent."""
