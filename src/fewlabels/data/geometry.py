"""Resizing and cropping with Pillow, for `ImageSet.stack` and for image transforms."""

from PIL import Image

from fewlabels.errors import InputError

FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
}  # Pillow applies antialiasing with all of them
MAX_PIXELS = 89_478_485  # a quarter of a GiB of RGB, Pillow's own limit for files


def resize_short_side(image: Image.Image, size: int, *, resample: str = "bicubic") -> Image.Image:
    """Resize to a short side of `size` pixels with the same aspect ratio; unchanged if it fits.

    The long side is rounded down as in torchvision, with which most pretrained networks were
    trained.
    """
    short, long = sorted(image.size)
    if short == size:
        return image
    new_long = size * long // short
    if size * new_long > MAX_PIXELS:
        raise InputError(
            f"the image is too narrow to resize: {image.width} × {image.height} pixels with a "
            f"short side of {size} would be {new_long} long. Crop it first."
        )
    new_size = (size, new_long) if image.width <= image.height else (new_long, size)
    return image.resize(new_size, FILTERS[resample])


def resize_square(image: Image.Image, size: int, *, resample: str = "bicubic") -> Image.Image:
    """Resize both sides to `size` pixels for any aspect ratio; unchanged if they fit."""
    return image if image.size == (size, size) else image.resize((size, size), FILTERS[resample])


def crop_center(image: Image.Image, size: int) -> Image.Image:
    """The center square with sides of `size` pixels; unchanged if it is the whole image."""
    if image.size == (size, size):
        return image
    if min(image.size) < size:
        raise InputError(
            f"crop({size}) needs an image of at least {size} × {size} pixels, "
            f"got {image.width} × {image.height}. Resize first."
        )
    left, top = (round((side - size) / 2) for side in image.size)  # rounded as in torchvision
    return image.crop((left, top, left + size, top + size))
