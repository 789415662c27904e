"""The embedded model: replay, whole model, shallow model and reloaded checkpoint agree."""

import pytest
import torch

from shoal.core.mask import Mask
from shoal.data import Tokenisation, load_choices, load_corpus
from shoal.evaluation.tasks import TaskSettings, measure
from shoal.models.load import load_dense
from shoal.surgery.export import export
from shoal.surgery.memory import shallow_model

pytestmark = pytest.mark.real
MASK = Mask.of(30, [5, 14, 26])
SETTINGS = TaskSettings(Tokenisation(), length=128, num_texts=2)


@pytest.fixture(scope="module")
def data():
    return [
        load_corpus("wikitext2", data_dir="embedded", purpose="report"),
        load_choices("arc_easy", data_dir="embedded", purpose="report", limit=4),
    ]


@pytest.fixture(scope="module")
def written(real_dense, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "out"
    report = export(real_dense, MASK, out)
    assert report.max_logit_difference < 1e-4
    assert report.checks["same_tokens_cached"]
    return out


def test_the_written_checkpoint_scores_as_the_masked_model(real_dense, written, data):
    loaded = load_dense(str(written))
    assert loaded.depth == 27
    assert loaded.tokenizer("a shoal").input_ids == real_dense.tokenizer("a shoal").input_ids
    for part in data:
        masked = measure(real_dense, [MASK], part, SETTINGS)[0]
        reloaded = measure(loaded, [Mask.dense(27)], part, SETTINGS)[0]
        for a, b in zip(masked, reloaded, strict=True):
            assert a.per_example == pytest.approx(b.per_example, abs=1e-4)


def test_the_shallow_model_generates_as_the_written_one(real_dense, written):
    loaded = load_dense(str(written))
    shallow = shallow_model(real_dense, MASK)
    prompt = real_dense.tokenizer("The sea was calm and", return_tensors="pt")
    settings = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 2}
    texts = [
        model.generate(**prompt, **settings, use_cache=cached)
        for model in (shallow, loaded.module)
        for cached in (True, False)
    ]
    assert all(torch.equal(texts[0], t) for t in texts[1:])


def test_a_safetensors_folder_streams_to_the_same_checkpoint(real_folder, written, tmp_path):
    """The file route against the memory route, tensor by tensor."""
    from safetensors.torch import load_file

    report = export(load_dense(str(real_folder)), MASK, tmp_path / "out")
    assert report.route == "file"
    first = load_file(written / "model.safetensors")
    second = load_file(tmp_path / "out" / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
