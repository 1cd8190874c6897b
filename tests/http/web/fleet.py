"""Workers, resources and partitions with something of everything, for the pages about them."""

from pathlib import Path
from typing import Any

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.figures import RAW, Flow, HandlerFigures, PoolSample, ResourceSample, Sample, bucket
from pitboss.model.limits import Window
from pitboss.model.partition import Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.resource import (
    Limits,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
)
from pitboss.model.snapshot import Snapshot
from pitboss.model.task import NewTask
from pitboss.telemetry.logs.files import worker_file
