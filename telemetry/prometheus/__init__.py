"""What Prometheus scrapes and what Grafana shows."""
