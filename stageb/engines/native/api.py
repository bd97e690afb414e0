"""The interface of the default engine for loops that train such models; they import nothing else
from this room.

- ``TransformersEngine`` answers prompts by a loaded model
- ``ATTENTION`` is the attention that a checkpoint's config may name; ``attend_apart`` attends to
  texts packed behind each other, ``has_flash`` says whether torch's flash attention takes a query,
  ``Envelope`` carries a view through compiled layers
- ``image_inputs_of`` gives a checkpoint's eyes, ``ImageInputs``, which tell an image's ``Grid`` of
  patches; ``PICTURE`` is the first id that stands for an image, ``DRAWN`` the path of one that is
  drawn to try them, ``THREADS`` how many decode images
- ``send`` brings a tensor to a device without waiting for it
"""

from stageb.engines.native.attention import NAME as ATTENTION
from stageb.engines.native.attention import Envelope, attend_apart, has_flash
from stageb.engines.native.memory import send
from stageb.engines.native.rows import PICTURE
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.native.vision import DRAWN, THREADS, Grid, ImageInputs, image_inputs_of

__all__ = [
    "ATTENTION", "DRAWN", "PICTURE", "THREADS", "Envelope", "Grid", "ImageInputs",
    "TransformersEngine", "attend_apart", "has_flash", "image_inputs_of", "send",
]  # fmt: skip
