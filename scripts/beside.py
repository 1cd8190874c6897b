"""Each reference drawing of a page beside a picture of ours: `python -m scripts.beside DRAWINGS PICTURES OUT`."""

import sys
from pathlib import Path

from PIL import Image

PAIRS = {
    "overview-light": "overview-wide-light",
    "overview-dark": "overview-wide-dark",
    "overview-ok-light": "overview-ok-wide-light",
    "overview-empty-light": "overview-empty-wide-light",
    "tasks-light": "tasks-wide-light",
    "task-light": "task-wide-light",
    "resources-light": "resources-wide-light",
    "batch-light": "batch-wide-light",
    "overview-390-light": "overview-narrow-light",
    "overview-390-dark": "overview-narrow-dark",
}


def main() -> None:
    drawings, pictures, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for drawing, ours in PAIRS.items():
        left, right = Image.open(drawings / f"{drawing}.png"), Image.open(pictures / f"{ours}.webp")
        both = Image.new("RGB", (left.width + right.width + 20, max(left.height, right.height)), "white")
        both.paste(left.convert("RGB"), (0, 0))
        both.paste(right.convert("RGB"), (left.width + 20, 0))
        both.save(out / f"{drawing}.png")


if __name__ == "__main__":
    main()
