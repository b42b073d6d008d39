"""How far an answer can be believed: calibration, and rows of no known class."""
