#!/usr/bin/env python3
"""Breaks each rule once and sees that some test notices.

Works on a copy of the workspace in a temporary directory, with a build directory of its own that all mutants
share, and never touches the root package, which needs a server's headers. Run by `make mutants`; a word on the
command line takes only the mutants whose label contains it.

Exit status: 0 when every mutant was killed, 1 when one survived, could not be built, or no longer fits the source.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import deciding
import ending
import finding
import granting
import passing

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = "crates/idem_rules/src"
# The second group is built only for what the first one did not notice.
TESTS = (["--test", "decision_table", "--test", "moves"], ["--lib", "--test", "messages"])

# (file, text that stands there exactly once, what stands there instead, which rule that breaks)
MUTANTS = [mutant for topic in (deciding, granting, ending, finding, passing) for mutant in topic.MUTANTS]


def workspace(where: pathlib.Path) -> pathlib.Path:
    """A copy of everything that cargo reads for `-p idem_rules`; the root package is there but not built."""
    copy = where / "workspace"
    shutil.copytree(ROOT / "crates", copy / "crates", ignore=shutil.ignore_patterns("target"))
    shutil.copytree(ROOT / "src", copy / "src")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def cargo(copy: pathlib.Path, target: pathlib.Path, *words: str) -> subprocess.CompletedProcess:
    """Runs cargo in the copy. A rule that never ends must not hold up the others, so there is a limit."""
    command = ["cargo", "test", "--quiet", "--locked", "--package", "idem_rules", "--target-dir", str(target)]
    # Nobody debugs a mutant; without the information it links in half the time.
    quick = {**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0", "RUST_BACKTRACE": "0"}
    return subprocess.run(
        [*command, *words], cwd=copy, env=quick, capture_output=True, text=True, timeout=600, check=False
    )


def run(copy: pathlib.Path, target: pathlib.Path) -> tuple[str, str]:
    """killed, survived or not built; and what cargo said last."""
    for tests in TESTS:
        for words in ([*tests, "--no-run"], tests):
            result = cargo(copy, target, *words)
            if result.returncode != 0:
                fate = "not built" if "--no-run" in words else "killed"
                return fate, result.stdout + result.stderr
    return "survived", ""


def judge(copy: pathlib.Path, target: pathlib.Path, mutant: tuple) -> tuple[str, str]:
    """killed, survived, not built, timed out or stale; and what cargo said last. The source is as it was afterwards."""
    file, old, new, _ = mutant
    path = copy / RULES / file
    source = path.read_text()
    if source.count(old) != 1:
        return "stale", ""
    path.write_text(source.replace(old, new))
    try:
        return run(copy, target)
    except subprocess.TimeoutExpired:
        # A slow machine looks the same, so it is not counted as noticed.
        return "timed out", ""
    finally:
        path.write_text(source)


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = [mutant for mutant in MUTANTS if wanted in mutant[3]]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pg_idem_mutants_") as place:
        copy, target = workspace(pathlib.Path(place)), pathlib.Path(place) / "target"
        fate, said = run(copy, target)
        if fate != "survived":
            print(f"{said}\nwithout any mutant the rules do not pass their tests")
            return 1
        fates = []
        for mutant in mutants:
            fate, said = judge(copy, target, mutant)
            fates.append((fate, said, mutant))
            print(f"{fate:9}  {mutant[0]:13} {mutant[3]}", flush=True)
    counts = {fate: sum(1 for found, _, _ in fates if found == fate) for fate in ("killed", "survived", "not built", "timed out", "stale")}
    took = time.monotonic() - begun
    print(f"\n{len(mutants)} mutants in {took:.0f} s: " + ", ".join(f"{n} {fate}" for fate, n in counts.items()))
    for fate, said, (file, old, new, label) in fates:
        if fate != "killed":
            print(f"\n{fate}: {label} ({file})\n- {old}\n+ {new}\n{said}")
    return 0 if mutants and counts["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
