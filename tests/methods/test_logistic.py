"""Logistic regression, beside scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fewlabels import FewLabelsClassifier, fit, load_embedded
from fewlabels.methods.logistic import LOGISTIC


def test_probabilities_are_those_of_scikit_learn():
    known = load_embedded()
    rows = np.flatnonzero(known.labels < 6)
    x, labels = known.features[rows], known.labels[rows]
    shown = np.arange(len(x)) % 7 == 0  # classes have different numbers of labels
    found = fit("logistic", x[shown], labels[shown], x[~shown])
    z = found.method.pipeline.apply(torch.tensor(x[shown])[None], torch.tensor(x[~shown])[None])
    support, query = (each[0].double().numpy() for each in z)
    oracle = LogisticRegression(
        C=LOGISTIC.inverse_penalty, class_weight="balanced", max_iter=5000, tol=1e-8
    ).fit(support, labels[shown])
    np.testing.assert_allclose(found.probabilities, oracle.predict_proba(query), atol=5e-3)
    later = found.predict_proba(x[~shown])
    np.testing.assert_allclose(later, found.probabilities, atol=1e-4)


@pytest.mark.parametrize("method", ["logistic", "folder"])
def test_where_every_row_has_a_label_later_rows_are_decided_by_regression(method):
    known = load_embedded()
    later = np.arange(len(known.labels)) % 2 == 1
    x, labels = known.features[~later], known.labels[~later]
    model = FewLabelsClassifier(method).fit(x, labels)
    accuracy = (model.predict(known.features[later]) == known.labels[later]).mean()
    means = FewLabelsClassifier("ncm").fit(x, labels)
    assert accuracy > (means.predict(known.features[later]) == known.labels[later]).mean() + 0.02
