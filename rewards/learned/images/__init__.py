"""Rewards of images: ImageReward, CLIPScore, PickScore, HPSv2, Aesthetic, and a user's own scorers.

The base class of a scorer is `verifier.ImageVerifier`; it needs Pillow, and torch only where the
scorer does.
"""

from .verifier import ImageVerifier, PreparedImage

__all__ = ["ImageVerifier", "PreparedImage"]
