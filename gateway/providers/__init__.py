"""The model providers: each knows its API's limits, fields, prices and errors; provider.py is what they share."""
