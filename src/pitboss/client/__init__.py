"""The asking side: declare handlers, enqueue, wait, cancel. An async core with one thin sync face."""
