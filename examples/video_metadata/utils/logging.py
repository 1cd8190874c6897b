"""Logs in JSON, one object per line, with the worker and the task of each line. `Worker.main` sets them up."""

import logging

from pitboss.remote import JSONFormatter, log_context, setup_logging

__all__ = ["JSONFormatter", "log_context", "logger", "setup_logging"]

logger = logging.getLogger("video_metadata")
