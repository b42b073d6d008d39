"""Numbers that kernels know steps and classifiers by, and what all kernels agree on."""

UNIT, CENTER, CENTER_JOINTLY, CENTER_BY_SUPPORT = 0, 1, 2, 3  # episodic steps of a pipeline
NEAREST, KMEANS, FREE, MASS, MINIMUM, ESTIMATE = (
    0,
    1,
    2,
    3,
    4,
    5,
)  # FREE is soft K-Means; the last three are MAP
KMEANS_ITERATIONS = 100  # as the readable classifier
NEWTON_ITERATIONS = 60  # an episode that needs more is given to the readable solver

# As in transport.solver, where they are explained.
ENOUGH, DAMPING_FACTOR, LONGEST_STEP = 0.9, 30.0, 5.0
FIRST_DAMPING, FIRST_DAMPING_EXACT = 1e-6, 1e-10  # in float32, in float64

# As in methods.estimation and preprocess.smoothing, where they are explained.
FREE_STEPS, LENGTH_TRUST = 4, 0.5
UNEVEN_AT, OF_SMALL_CLASSES, OF_MANY_CLASSES, SHARPNESS_OF_WEIGHT = 0.15, 2.1, 0.075, 10.0
PRIOR_COUNT, OWN_SHARE = 1.0, 0.5
OWN_WEIGHT, HOPS, CLOSEST, WITHIN, SAME = 0.5, 2, 3, 1 / 3, 1e-9
SHRINK_TO, CALIBRATION, ROUNDS = 10.0, 0.5, 2
SHORTEST_LAM, LONGEST_LAM = 1.0, 1000.0
NEARLY_ANOTHER = 1.5e-6  # two neighbours whose cosines differ by less may change places in float32; over three times the largest error seen
NEARLY_ANOTHER_SHORTENED = 4e-6  # likewise, after a factorisation
