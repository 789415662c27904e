"""Configs that disagree with themselves: what is read how, with one notice, and what is refused."""

import json
import logging

import pytest

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.models.load import load_config, load_dense
from shoal.models.repair import repaired_config
from shoal.models.source import resolve
from shoal.surgery.export import export
from shoal.testing.tiny import save_tiny

F, S = "full_attention", "sliding_attention"


@pytest.fixture
def written(tmp_path):
    """Writes a tiny model and edits its config.json; gives the folder."""

    def write(family, **edits):
        folder = save_tiny(family, tmp_path / family, tokenizer=False)
        path = folder / "config.json"
        config = json.loads(path.read_text())
        for name, value in edits.items():
            config[name] = value
            if value is None:
                del config[name]
        path.write_text(json.dumps(config))
        return folder

    return write


@pytest.mark.parametrize("family", ["llama", "gemma2", "dory", "nemotron_h", "gemma3", "reformer"])
def test_configs_that_agree_are_left_alone(written, family):
    assert repaired_config(resolve(str(written(family)))) is None


def test_list_that_is_too_long_is_cut_with_one_notice(written, caplog):
    folder = written("gemma2", layer_types=[S, F] * 4)
    with caplog.at_level(logging.WARNING, "shoal"):
        config = load_config(resolve(str(folder)))
    assert config.layer_types == [S, F] * 3
    notices = [r for r in caplog.records if "layer_types has 8 entries for 6 blocks" in r.message]
    assert len(notices) == 1


def test_repaired_model_is_loaded_and_exported(written, tmp_path):
    dense = load_dense(str(written("gemma2", layer_types=[S, F] * 4)))
    report = export(dense, Mask.of(6, [1, 3]), tmp_path / "out")
    assert report.max_logit_difference == 0
    kinds = json.loads((tmp_path / "out/config.json").read_text())["layer_types"]
    assert kinds == [S, S, S, F]


def test_one_entry_stands_for_all(written):
    folder = written("qwen3", layer_types=[F])
    assert load_config(resolve(str(folder))).layer_types == [F] * 6


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"layer_types": [S, F, S]}, "6 blocks but 3 entries of layer_types"),
        ({"num_hidden_layers": 4}, "4 blocks but 6 entries of layer_types"),
    ],
)
def test_what_could_mean_two_things_is_refused(written, edits, reason):
    with pytest.raises(UsageError, match=reason):
        load_config(resolve(str(written("gemma2", **edits))))


@pytest.mark.parametrize("family", ["gemma2", "olmo3", "smollm3", "llama4_text", "exaone_moe"])
def test_old_config_without_lists_gives_one_with_them(written, tmp_path, family):
    lists = {name: None for name in ("layer_types", "no_rope_layers", "mlp_layer_types")}
    config = json.loads((written(family) / "config.json").read_text())
    folder = written(family, **{name: None for name in lists if name in config})
    dense = load_dense(str(folder))
    export(dense, Mask.of(6, [0, 3]), tmp_path / "out")
    found = json.loads((tmp_path / "out/config.json").read_text())
    assert len(found["layer_types"]) == 4
    assert found["layer_types"] == [dense.config.layer_types[i] for i in (1, 2, 4, 5)]
