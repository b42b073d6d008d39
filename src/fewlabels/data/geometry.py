"""Resizing and cropping with Pillow, the same everywhere: in `ImageSet.stack` and in image transforms."""

from PIL import Image

from fewlabels.errors import InputError

FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
}  # all are antialiased by Pillow
MAX_PIXELS = 89_478_485  # a quarter of a GiB of RGB, as Pillow's own limit for files


def resize_short_side(image: Image.Image, size: int, *, resample: str = "bicubic") -> Image.Image:
    """Make the short side `size` long and keep the aspect; untouched if it is already.

    The long side is rounded down, as torchvision does, so that pretrained networks see what they were trained on.
    """
    short, long = sorted(image.size)
    if short == size:
        return image
    new_long = size * long // short
    if size * new_long > MAX_PIXELS:
        raise InputError(
            f"the image is too narrow to resize: {image.width} × {image.height} pixels with a short side of {size} would be "
            f"{new_long} long. Crop it first."
        )
    new_size = (size, new_long) if image.width <= image.height else (new_long, size)
    return image.resize(new_size, FILTERS[resample])


def resize_square(image: Image.Image, size: int, *, resample: str = "bicubic") -> Image.Image:
    """Make both sides `size` long, whatever the aspect; untouched if they are already."""
    return image if image.size == (size, size) else image.resize((size, size), FILTERS[resample])


def crop_center(image: Image.Image, size: int) -> Image.Image:
    """The square of side `size` in the middle; untouched if that is all of it."""
    if image.size == (size, size):
        return image
    if min(image.size) < size:
        raise InputError(
            f"crop({size}) needs an image of at least {size} × {size} pixels, got {image.width} × {image.height}. Resize first."
        )
    left, top = (
        round((image.width - size) / 2),
        round((image.height - size) / 2),
    )  # as torchvision rounds
    return image.crop((left, top, left + size, top + size))
