"""The HTTP door: jobs in, events and bills out, previews and live pages."""
