"""Recording and alerting rules for Prometheus, as it reads them."""
