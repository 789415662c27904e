"""The geometry of hidden states, and interventions on the blocks that shape it."""
