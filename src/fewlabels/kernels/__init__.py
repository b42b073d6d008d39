"""Fused code with the labels of the readable methods, faster; private to the engines."""
