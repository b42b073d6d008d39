"""Stage 1: images on disk, as ImageSets. `ptmap.data.transforms` is apart, because only it needs torch."""

from ptmap.data.benchmarks import read_benchmark
from ptmap.data.class_lists import BENCHMARKS, Benchmark, require_disjoint
from ptmap.data.folders import read_images
from ptmap.data.image_set import ImageSet, Problem

__all__ = ["BENCHMARKS", "Benchmark", "ImageSet", "Problem", "read_benchmark", "read_images", "require_disjoint"]
