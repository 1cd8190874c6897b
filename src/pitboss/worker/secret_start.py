"""Starts a child process whose settings hold a secret: `python -m pitboss.worker.secret_start MODULE PIPE FD…`.

All users of a host can read the arguments of its processes. So the settings come through a pipe, and only inside the
process they stand in `sys.argv`, where the module finds them as usual: SPEC FD….
"""

import os
import runpy
import sys

SECRET_START = "pitboss.worker.secret_start"


def main() -> None:
    module, pipe, *files = sys.argv[1:]
    with os.fdopen(int(pipe), encoding="utf-8") as settings:
        sys.argv[1:] = [settings.read(), *files]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
