"""The paper: the published numbers as data, and its tables and figures with ours beside them."""

from fewlabels.paper.published import Published, read_published

__all__ = ["Published", "read_published"]
