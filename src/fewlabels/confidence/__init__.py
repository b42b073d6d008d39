"""Confidence in the labels: calibrated probabilities, and the probability to be an outlier."""
