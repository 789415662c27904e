"""Loading a causal LM, finding its blocks, and re-running them."""
