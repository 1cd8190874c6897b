"""The worker. Its modules import each other by their own names: `from worker import Worker`, from this folder."""
