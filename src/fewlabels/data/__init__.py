"""Stage 1: images on disk, as ImageSets. Only `fewlabels.data.transforms` needs torch."""

from fewlabels.data.benchmarks import read_benchmark
from fewlabels.data.class_lists import BENCHMARKS, require_disjoint
from fewlabels.data.folders import read_images
from fewlabels.data.image_set import ImageSet, Problem

__all__ = ["BENCHMARKS", "ImageSet", "Problem", "read_benchmark", "read_images", "require_disjoint"]
