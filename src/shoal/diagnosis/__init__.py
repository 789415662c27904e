"""When a compressed model is safe to use, and why: He et al. 2026, 2603.24652."""
