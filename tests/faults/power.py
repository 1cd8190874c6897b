"""Records a busy store, then takes its power away again and again, and examines what is left."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree

import msgspec

from pitboss.testing.history import Entry
from tests.faults.disk import Disk, Image, Note, Op, SyncDone
from tests.faults.recording import record
from tests.faults.survival import examine

FILE = "s.db"


@dataclass
class Start:
    """Where a recording begins: the files, and what was seen of the store before."""

    image: Image = field(default_factory=dict)
    events: list[Entry] = field(default_factory=list)


@dataclass
class Losses:
    """The result of a number of power losses."""

    crashes: int = 0
    unsynced: int = 0
    # How often the recorded process moved its log into the file.
    checkpoints: int = 0
    faults: list[str] = field(default_factory=list)
    # One of the survivors, to go on from.
    survivor: Start = field(default_factory=Start)


def lose_power(folder: Path, rng: Random, times: int, *load: str, start: Start | None = None) -> Losses:
    """Record one load (options of `power_load`) and crash it at a number of its operations, chosen at random."""
    start = start or Start()
    store, history = folder / "store", folder / "history"
    _laid_out(store, start.image)
    arguments = [str(store / FILE), str(history), "--seed", str(rng.randrange(10**6)), *load]
    ops = record(store, history, "tests.faults.power_load", *arguments)
    history.unlink()
    chosen = sorted(rng.choices(range(1, len(ops) + 1), k=times))
    losses = _crashed(folder / "left", ops, chosen, start, rng)
    losses.checkpoints = sum(isinstance(op, SyncDone) and op.file == FILE for op in ops)
    return losses


def _crashed(folder: Path, ops: list[Op], chosen: list[int], start: Start, rng: Random) -> Losses:
    disk, events, decoder = Disk(start.image), list(start.events), msgspec.json.Decoder(Entry)
    losses, done, kept = Losses(), 0, rng.choice(chosen)
    for place in chosen:
        for op in ops[done:place]:
            disk.apply(op)
            if isinstance(op, Note):
                events.append(decoder.decode(op.data))
        done = place
        image = disk.without_power(rng)
        losses.crashes += 1
        losses.unsynced += disk.unsynced() > 0
        if place == kept:
            losses.survivor = Start(image, list(events))
        _laid_out(folder, image)
        losses.faults += [f"power lost at operation {place}: {fault}" for fault in examine(folder / FILE, events, rng)]
    return losses


def _laid_out(folder: Path, image: Image) -> None:
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in image.items():
        (folder / name).write_bytes(content)
