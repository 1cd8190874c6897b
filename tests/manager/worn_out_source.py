"""A delivery process whose tries to reach a broker follow each other at once."""

from pitboss.cli import delivery_process
from pitboss.sources import connecting

if __name__ == "__main__":
    connecting._PAUSES = (0.01, 0.01, 0.01)
    delivery_process.main()
