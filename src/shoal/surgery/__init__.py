"""Turning a mask into an ordinary checkpoint: config, tensors, files, verification."""
