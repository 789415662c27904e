"""Search algorithms: torch-free generators that propose masks and receive evaluations."""
