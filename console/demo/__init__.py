"""`tenantscope demo`: a real pool, a noisy neighbour, the console, the report."""
