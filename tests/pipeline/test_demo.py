"""The demo on a tiny model: both checkpoints, one honest table, nothing replaced by accident."""

import json

import pytest
from transformers import AutoModelForCausalLM

from shoal.core.errors import UsageError
from shoal.core.plan import Plan
from shoal.pipeline.demo import run_demo
from shoal.pipeline.listener import Listener
from shoal.testing.tiny import save_tiny


class Notes(Listener):
    def __init__(self):
        self.heard = []

    def note(self, text):
        self.heard.append(text)


def test_demo_makes_two_models_and_a_report(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    notes = Notes()
    result = run_demo(tmp_path / "out", remove=2, model=str(model), length=64, listener=notes)
    names = [m.name for m in result.report.models]
    assert names == ["dense", "pruned for perplexity", "pruned for margin"]
    assert notes.heard[2].startswith("both searches are estimated to take")
    for name, folder in result.folders.items():
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        assert loaded.config.num_hidden_layers == 4
        row = next(m for m in result.report.models if m.name == name)
        assert Plan.load(folder).mask == row.mask
        assert row.size.disk_bytes == (folder / "model.safetensors").stat().st_size
        assert {d.name for d in row.differences} == {m.name for m in row.metrics}
        assert {s.batch_size for s in row.speed} == {1, 4}
        splits = {m.split for m in row.metrics}
        assert splits == {"test"}
        assert Plan.load(folder).data["split"] != "test"
    written = json.loads(result.report_file.read_text())
    assert len(written["models"]) == 3
    with pytest.raises(UsageError, match="exists"):
        run_demo(tmp_path / "out", remove=2, model=str(model), length=64)
    again = run_demo(tmp_path / "out", remove=2, model=str(model), length=64, overwrite=True)
    assert [m.mask for m in again.report.models] == [m.mask for m in result.report.models]
