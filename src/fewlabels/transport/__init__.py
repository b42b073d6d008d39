"""Class sizes and entropic transport between samples and classes."""
