"""The console: what people see and decide, rendered by the API's process from the same views that HTTP and CLI show."""
