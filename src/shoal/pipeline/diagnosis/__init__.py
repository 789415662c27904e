"""The diagnosis stage."""
