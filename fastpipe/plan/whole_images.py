"""The kinds of size= that show whole images, whose sizes follow from the images."""

from __future__ import annotations

from fastpipe.plan.buckets import Buckets
from fastpipe.plan.native import Native
from fastpipe.plan.patches import Patches

WholeImages = Buckets | Native | Patches
