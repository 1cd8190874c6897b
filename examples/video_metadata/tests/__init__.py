"""Unit tests need no network; integration.py needs a running server."""

import logging

logging.getLogger("video_metadata").addHandler(logging.NullHandler())  # expected warnings are not printed
