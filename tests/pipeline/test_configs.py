"""Every shipped config is valid and runs, on a tiny model of the same depth."""

from pathlib import Path

import pytest

from shoal.config.run import RunConfig, read_yaml
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import prepare
from shoal.pipeline.prune import run_prune
from shoal.testing.tiny import save_tiny

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("deep") / "model", depth=30)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_a_config_runs(path, deep, tmp_path):
    values = read_yaml(path)
    assert RunConfig.read(values).model == "smollm2-135m"
    small = {"model": str(deep), "limit": 2, "length": 16, "evaluate_limit": 2,
             "run_dir": tmp_path / "run", "out": tmp_path / "out"}  # fmt: skip
    result = run_prune(prepare(RunConfig.read(values | small)), Listener())
    mask = result.search.plan.mask
    assert len(mask.sublayers) == 2 * RunConfig.read(values).num_removed(30)
    assert not {site.layer for site in mask} & set(RunConfig.read(values).protect)


def test_there_are_configs():
    assert len(CONFIGS) >= 3


def test_the_readme_names_every_command_and_only_those():
    import re

    from shoal.cli.app import COMMANDS

    named = set(re.findall(r"`shoal (\w+)", (ROOT / "README.md").read_text()))
    assert named == set(COMMANDS)
