"""Light imports, small files, one-way layers."""

import subprocess
import sys
from pathlib import Path

import pytest

import shoal

ROOT = Path(__file__).resolve().parents[1]

PROBE = "import sys; {}; print(any(m in sys.modules for m in ('torch', 'transformers')))"


def loads_torch(statement):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().endswith("True")


@pytest.mark.parametrize(
    "statement",
    [
        "import shoal",
        "import shoal.config.run, shoal.searches.greedy, shoal.data",
        "from shoal.cli.app import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from shoal.cli.app import main\ntry: main(['prune', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_no_torch(statement):
    assert not loads_torch(statement)


def test_the_probe_can_fail():
    assert loads_torch("import shoal; shoal.prune")


def test_public_names():
    assert all(getattr(shoal, name) is not None for name in shoal.__all__)
    assert set(shoal.__all__) <= set(dir(shoal))
    with pytest.raises(AttributeError):
        _ = shoal.nothing


def test_no_file_is_long():
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    long = {f.name: n for f in files if (n := len(f.read_text().splitlines())) > 400}
    assert not long
