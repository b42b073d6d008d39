"""Stage 2': how a backbone is made on the base classes, images in, checkpoint out."""
