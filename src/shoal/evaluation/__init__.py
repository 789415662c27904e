"""Measuring dense and pruned models with the same code: tasks, size, speed, paired differences."""
