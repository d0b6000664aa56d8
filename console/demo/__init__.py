"""`tenantscope demo`: a real pool, a noisy neighbour, the table, the report."""
