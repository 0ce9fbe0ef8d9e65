"""Run the ledger: migrate and dump it, archive its audit trail, check its history, list its workers."""
