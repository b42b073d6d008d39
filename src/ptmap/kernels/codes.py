"""Numbers that kernels know steps and classifiers by, and what all kernels agree on."""

UNIT, CENTER, CENTER_JOINTLY = 0, 1, 2  # episodic steps of a pipeline
NEAREST, KMEANS, FREE, MASS, MINIMUM = 0, 1, 2, 3, 4  # FREE is soft K-Means; MASS and MINIMUM are MAP
KMEANS_ITERATIONS = 100  # as the readable classifier
NEWTON_ITERATIONS = 60  # an episode that needs more is given to the readable solver

# As in classifiers.transport, where they are explained.
ENOUGH, DAMPING_FACTOR, LONGEST_STEP = 0.9, 30.0, 5.0
FIRST_DAMPING, FIRST_DAMPING_EXACT = 1e-6, 1e-10  # in float32, in float64
