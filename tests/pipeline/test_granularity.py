"""Searching in every granularity and budget, from the request to the verified checkpoint."""

import pytest

import shoal
from shoal.config.run import RunConfig
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.layout import Layout, fuses
from shoal.core.mask import Part
from shoal.core.plan import Plan
from shoal.models.load import load_dense
from shoal.pipeline.prepare import prepare, settled
from shoal.testing.tiny import save_tiny, tiny_model, tiny_tokenizer

PARAMETERS = 63904


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("granularity")
    save_tiny("llama", folder / "llama")
    save_tiny("cohere", folder / "cohere")
    (folder / "text.txt").write_text("the cat sat on the mat and the dog ran. " * 200)
    return folder


def prune(place, family="llama", **options):
    name = "-".join(f"{k}={v}" for k, v in {"family": family, **options}.items())
    name = name.replace("/", "").replace("%", "p")
    text = str(place / "text.txt")
    return shoal.prune(
        str(place / family),
        objective="nll",
        task=text,
        limit=2,
        length=32,
        evaluate=text,
        evaluate_limit=1,
        allow_calibration_on_test=True,
        run_dir=place / "runs" / name,
        out=place / "out" / name,
        **options,
    )


@pytest.mark.parametrize("search", ["greedy", "one_shot", "beam"])
def test_half_steps_give_the_depth_of_blocks(place, search):
    result = prune(place, granularity="half", remove=2, search=search)
    mask, export = result.search.plan.mask, result.export
    assert fuses(mask)
    assert len(Layout.of(mask)) == 4
    assert export.max_logit_difference < 1e-5
    assert result.search.plan.granularity == "half"
    assert not export.zeroed


@pytest.mark.parametrize(("granularity", "part"), [("attn", Part.ATTN), ("mlp", Part.MLP)])
def test_one_kind_of_sub_layer(place, granularity, part):
    result = prune(place, granularity=granularity, remove=2)
    mask = result.search.plan.mask
    assert len(mask) == 2
    assert {site.part for site in mask} == {part}
    assert result.export.format == "stock-zeroed"
    assert len(result.export.zeroed) == 2


def test_sub_layers_of_both_kinds_are_counted(place):
    mask = prune(place, granularity="attn+mlp", remove=3).search.plan.mask
    assert len(mask.sublayers) == 3


def test_fusable_sub_layers_go_in_pairs(place):
    result = prune(place, granularity="attn+mlp", fusable=True, remove=2)
    assert fuses(result.search.plan.mask)
    assert result.export.format in ("stock", "fuse")


@pytest.mark.parametrize("granularity", ["mixed", "half", "block"])
def test_a_share_of_the_parameters(place, granularity):
    result = prune(place, granularity=granularity, remove_params="20%")
    dense = shoal.load(str(place / "llama"))
    total = sum(p.numel() for p in dense.parameters())
    mask = result.search.plan.mask
    gone = 0
    for i, layer in enumerate(dense.model.layers):
        attention = [*layer.self_attn.parameters(), *layer.input_layernorm.parameters()]
        mlp = [*layer.mlp.parameters(), *layer.post_attention_layernorm.parameters()]
        gone += sum(p.numel() for p in attention) * (2 * i in mask.places)
        gone += sum(p.numel() for p in mlp) * (2 * i + 1 in mask.places)
    assert 0.2 * total <= gone < 0.2 * total + 9_600
    assert "parameters" in result.search.plan.budget


def test_a_share_of_the_time(place):
    result = prune(place, granularity="mixed", remove_time="15%")
    assert result.search.plan.mask.removed
    assert "ms of a forward pass" in result.search.plan.budget


def test_auto_takes_half_steps_where_they_exist(place):
    assert prune(place, granularity="auto", remove=1).search.plan.granularity == "half"
    assert prune(place, "cohere", granularity="auto", remove=1).search.plan.granularity == "block"
    windows = prune(place, granularity="auto", remove=1, search="fast_block_select")
    assert windows.search.plan.granularity == "block"


def test_parallel_blocks_lose_sub_layers_but_no_half_steps(place):
    assert prune(place, "cohere", granularity="attn", remove=2).export.format == "stock-zeroed"
    with pytest.raises(UnsupportedModelError, match=r"half steps: .* side by side"):
        prune(place, "cohere", granularity="half", remove=1)


def test_plans_of_sub_layers_come_back_from_their_file(place):
    result = prune(place, granularity="attn", remove=3)
    read = Plan.load(result.search.run_dir)
    assert read.mask == result.search.plan.mask
    model = shoal.load(str(place / "llama"), plan=read)
    assert sum(p.numel() for p in model.parameters()) < PARAMETERS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granularity": "mixed", "remove": 3}, "--remove-params 20%"),
        ({"remove": 2, "remove_params": "20%"}, "twice"),
        ({"granularity": "half", "remove": 2, "search": "fast_block_select"}, "whole blocks"),
        ({"granularity": "attn", "fusable": True, "remove": 2}, "alternating"),
        ({"remove_params": "20%", "search": "fast_block_select"}, "number of blocks"),
        ({"remove_params": "0%"}, "more than 0% and less than 100%"),
        ({"remove_params": "many"}, "neither a share"),
        ({"remove_params": "900B"}, "the model has 63,904 parameters"),
        ({"remove_time": "3"}, "give a share"),
        ({"remove_params": "0"}, "more than 0 and fewer"),
        ({"granularity": "mixed", "remove_params": "99%"}, "parameters: the 12 sub-layers"),
        ({"granularity": "half", "remove": 6}, "largest number is 5"),
        ({"granularity": "attn", "remove": 7}, "at most 6"),
        ({}, "--remove-params"),
    ],
)
def test_contradictions_are_refused(options, message):
    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    text = {"objective": "nll", "task": "wikitext2", "data_dir": "embedded", "limit": 2}

    def check():
        config = RunConfig.read({**text, **options})
        settled(prepare(config, dense, report=False), dense)

    with pytest.raises(UsageError, match=message):
        check()
