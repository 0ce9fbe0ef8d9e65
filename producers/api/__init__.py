"""The HTTP API: jobs in, events and bills out, previews and live pages."""
