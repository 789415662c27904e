"""Scores of single blocks that need no masked model: of their states, weights or gradients."""
