"""Remember: jobs, attempts, money, sites, runs and audit in PostgreSQL."""
