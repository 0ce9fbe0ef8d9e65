"""The one way to a model provider: it admits, relays, meters and books every call. A fake provider is included."""
