"""A copy of a server's programs, so that a test can install other versions of the extension than the machine has."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path


class ServerTree:
    """PostgreSQL finds its directories from where its programs stand, so a copy of the three is a server of its own.

    pg_config    of the copy
    extension    the copy's directory of control files and scripts
    """

    def __init__(self, pg_config=None):
        # Not where pytest keeps its files: the server's user has to get there.
        self.directory = directory = tempfile.mkdtemp(prefix="pg_idem-server-", dir="/tmp")
        os.chmod(directory, 0o755)
        def ask(program, what):
            return Path(subprocess.run([program, what], check=True, text=True, capture_output=True).stdout.strip())
        original = pg_config or os.environ.get("PG_CONFIG", "pg_config")
        places = [ask(original, what) for what in ("--bindir", "--pkglibdir", "--sharedir")]
        top = os.path.commonpath(places)
        for place in places:
            shutil.copytree(place, Path(directory, place.relative_to(top)), dirs_exist_ok=True)
        self.pg_config = Path(directory, places[0].relative_to(top), "pg_config")
        self.extension = ask(self.pg_config, "--sharedir") / "extension"
        assert self.extension.is_relative_to(directory)
        self.version = re.search("default_version = '(.*)'", self.control())[1]

    def control(self):
        return (self.extension / "pg_idem.control").read_text()

    def script(self, name):
        return self.extension / f"pg_idem--{name}.sql"

    def set_default_version(self, version):
        control = re.sub("default_version = '.*'", f"default_version = '{version}'", self.control())
        (self.extension / "pg_idem.control").write_text(control)

    def close(self):
        shutil.rmtree(self.directory)
