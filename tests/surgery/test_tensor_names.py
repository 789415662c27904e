"""Renaming tensors: prefixes of hub files, removed blocks, heads beyond the depth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.surgery.tensors import Renamer

MASK = Mask.of(4, [1])


def keys(prefix, depth=4, leaf="w"):
    return [f"{prefix}.{i}.{leaf}" for i in range(depth)]


def test_removed_goes_kept_is_renumbered_and_the_rest_stays():
    rename = Renamer("model.layers", Layout.of(MASK))
    assert rename("model.layers.0.mlp.w") == "model.layers.0.mlp.w"
    assert rename("model.layers.1.mlp.w") is None
    assert rename("model.layers.3.mlp.w") == "model.layers.2.mlp.w"
    assert rename("model.norm.weight") == "model.norm.weight"
    assert rename("model.layers_norm.3.w") == "model.layers_norm.3.w"
    assert rename("other.model.layers.1.w") == "other.model.layers.1.w"


def test_prediction_heads_are_dropped_and_logged(caplog):
    caplog.set_level("INFO")
    rename = Renamer("model.layers", Layout.of(MASK))
    assert rename("model.layers.4.eh_proj.weight") is None
    assert rename("mtp.layers.0.w") is None
    assert caplog.text.count("multi-token prediction") == 2


@pytest.mark.parametrize(
    ("names", "path", "prefix"),
    [
        (keys("model.layers"), "model.layers", "model.layers"),
        ([*keys("h"), "wte.weight"], "transformer.h", "h"),
        (keys("language_model.model.layers"), "model.language_model.layers", None),
        (keys("vision.layers", 2) + keys("model.layers"), "model.layers", "model.layers"),
        (keys("vision.layers") + keys("layers"), "model.layers", "layers"),
        (keys("lm.model.layers") + keys("vision.layers"), "model.lm.layers", None),
        (keys("model.decoder.layers"), "decoder.layers", "model.decoder.layers"),
        (keys("model.layers", 5), "model.layers", "model.layers"),
        (keys("model.layers", 4, "experts.layers.0.w"), "model.layers", "model.layers"),
    ],
)
def test_prefix_is_found_in_the_keys_of_a_file(names, path, prefix):
    expected = prefix or names[0].rpartition(".0.")[0]
    assert Renamer.of_keys(names, path, Layout.of(MASK)).prefix == expected


@pytest.mark.parametrize(
    "names", [["a.weight"], keys("model.layers", 3), keys("a.layers") + keys("b.layers")]
)
def test_unclear_keys_are_refused(names):
    with pytest.raises(UnsupportedModelError, match="cannot tell the tensors"):
        Renamer.of_keys(names, "model.layers", Layout.of(MASK))


@given(st.sets(st.integers(0, 7), max_size=7))
def test_kept_blocks_become_the_range_in_order(blocks):
    mask = Mask.of(8, blocks)
    rename = Renamer("m.h", Layout.of(mask))
    names = [new for new in map(rename, keys("m.h", 8)) if new is not None]
    assert names == keys("m.h", len(mask.kept))
    assert [rename.origin(name) for name in names] == [f"m.h.{i}.w" for i in mask.kept]
    assert rename.origin("m.norm") == "m.norm"
