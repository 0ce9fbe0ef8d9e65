"""The record of all work: jobs, attempts, money, sites, runs and audit in PostgreSQL."""
