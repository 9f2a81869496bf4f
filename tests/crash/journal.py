"""What a client was told: one JSON object a line, on disk before the client makes its next call."""

import json
import os
from pathlib import Path


class Journal:
    """The writing side: one client's file."""

    def __init__(self, directory, name):
        self._file = os.open(Path(directory, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def write(self, **entry):
        os.write(self._file, (json.dumps(entry, default=str) + "\n").encode())
        os.fsync(self._file)


class Journals:
    """The reading side: all files of a directory, each entry once."""

    def __init__(self, directory):
        self._directory, self._read = Path(directory), {}

    def news(self):
        """The entries written since the last call, with `client` added. A line that its writer was killed over is
        no entry: he had not acted on it."""
        for path in sorted(self._directory.iterdir()):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
                self._read[path] = self._read.get(path, 0) + len(whole + newline)
            for line in whole.splitlines():
                yield {**json.loads(line), "client": path.name}
