"""Training of a backbone on the base classes, from images to a checkpoint."""
