"""Stage 7: numbers to the paper. What was published, beside what this package measures."""

from fewlabels.paper.published import Published, read_published

__all__ = ["Published", "read_published"]
