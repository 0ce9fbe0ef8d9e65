"""Several installations as one fleet: the router before them, and moving a tenant between them."""
