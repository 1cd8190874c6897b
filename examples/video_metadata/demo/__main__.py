"""Everything in one command: a stand-in video API, `pitboss serve`, two workers, a hundred tasks, and an audit."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from demo import load
from demo.checks import Findings, report
from demo.processes import Fleet, free_port, serve
from demo.taskmanager import TaskManager
from demo.video_api import Rules, VideoAPI, serving
