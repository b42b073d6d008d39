"""The same answers, faster: fused code behind the classifiers. Private; `evaluation.engines` is its only door."""
