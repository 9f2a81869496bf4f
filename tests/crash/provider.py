"""The outside world: an effect is a line in a file of its key, on disk before the caller hears of it.

It is honest and no help: it keeps what it did, says so when asked, and does again what it is asked to do again.
"""

import os
from pathlib import Path


class Provider:
    def __init__(self, directory):
        self._directory = Path(directory)

    def apply(self, key, by):
        """Makes the effect once more. Returns the name of what came to be."""
        file = os.open(self._directory / key, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        try:
            os.write(file, f"{by}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)
        return f"effect of {by}"

    def effects(self, key):
        """Everything that was done under this key, the first one first."""
        try:
            return [f"effect of {line}" for line in (self._directory / key).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def keys(self):
        return os.listdir(self._directory)
