"""The conformance run: its oracle catches what is wrong, and over everything nothing is wrong."""

import json
import os

import pytest
import torch

from shoal.core.errors import UnsupportedModelError
from shoal.models.load import load_dense
from shoal.testing import conformance, conformance_subject
from shoal.testing.conformance import CHECKS, check_all, check_one, main
from shoal.testing.conformance_checks import old_config, replay, sets, singles, whole
from shoal.testing.conformance_oracle import Oracle, complaints, find_stacks
from shoal.testing.conformance_prompts import ONE, PADDED, Greedy, greedy_of
from shoal.testing.conformance_report import counts, line, markdown, summary
from shoal.testing.conformance_row import OK, Outcome, Row, Status, none, refused, wrong
from shoal.testing.conformance_subject import Subject, settle
from shoal.testing.tiny import save_tiny, tiny_model
from shoal.testing.zoo import ZOO

JOBS = max(1, min(2, os.cpu_count() or 1))


@pytest.mark.parametrize("name", ["llama", "gemma2", "bloom", "deepseek_v3"])
def test_right_families_pass_everything(name):
    row = check_one(name, [sets, singles, whole, replay])
    assert row.blocks == [load_dense(tiny_model(name)).blocks.path]
    assert {check: row.passes(check) for check in row.checks} == {
        "sets": True,
        "singles": True,
        "whole": True,
        "replay": True,
    }, summary([row])


@pytest.mark.parametrize("name", ["gemma2", "llama4_text"])
def test_old_configs_come_out_right(name, tmp_path):
    folder = Subject(name, tmp_path).old_checkpoint()
    config = json.loads((folder / "config.json").read_text())
    assert "layer_types" not in config
    assert "no_rope_layers" not in config
    assert check_one(name, [old_config]).passes("old_config")


def test_nothing_to_leave_out_of_a_config_without_lists():
    assert check_one("llama", [old_config]).outcomes("old_config")[0].status == Status.NONE


@pytest.fixture
def oracle(tmp_path):
    return Oracle.load(save_tiny("gemma2", tmp_path / "m", tokenizer=False))


def naive(oracle, keep):
    """The kept blocks with the first entries of every list, as naive tools write it."""
    state = {}
    for key, tensor in oracle.module.state_dict().items():
        head, found, rest = key.partition("model.layers.")
        block, _, tail = rest.partition(".")
        if not found:
            state[key] = tensor
        elif int(block) in keep:
            state[f"{head}{found}{keep.index(int(block))}.{tail}"] = tensor
    model = tiny_model("gemma2", depth=len(keep))
    model.load_state_dict(state)
    return model


def test_oracle_sees_a_wrong_order_of_block_kinds(oracle):
    drop = (0, 5)
    outcome = oracle.judge(naive(oracle, [1, 2, 3, 4]), drop)
    assert outcome.status == Status.WRONG
    assert "logits differ" in outcome.why
    assert oracle.judge(naive(oracle, [0, 1, 2, 3]), (4, 5)) == OK


def test_oracle_sees_other_tokens(oracle):
    model = tiny_model("gemma2", depth=5)
    outcome = oracle.judge_tokens(model, (5,))
    assert outcome.status == Status.WRONG
    assert "tokens" in outcome.why


def test_oracle_without_a_drop_is_the_plain_model(oracle):
    assert oracle.judge(oracle.module, ()) == OK
    assert not oracle.cache_disagrees
    with oracle.without((1,)):
        assert oracle.judge_logits(oracle.module, (1,)) == OK
    assert oracle.judge_logits(oracle.module, (1,)).status == Status.WRONG


def test_stacks_are_found_by_watching():
    assert list(find_stacks(tiny_model("gemma3[deep_tower]"))) == ["model.language_model.layers"]
    assert list(find_stacks(tiny_model("bart"))) == ["model.decoder.layers"]
    assert len(find_stacks(tiny_model("hrm_text"))) == 2
    with pytest.raises(LookupError, match="no list of 6"):
        find_stacks(tiny_model("llama", depth=5))


def test_prompts_are_padded_on_the_left():
    assert ONE.tokens.shape == (1, 24)
    assert PADDED.attended[1].tolist() == [0] * 7 + [1] * 17
    assert PADDED.tokens[1, 0] == 0


def test_either_way_is_accepted_only_where_the_cache_is_off():
    one, two = torch.tensor([[1, 2]]), torch.tensor([[1, 3]])
    dense = Greedy({"cached": one, "uncached": two})
    swapped = Greedy({"cached": two, "uncached": one})
    assert not dense.agree
    assert dense.differs(swapped, strict=False) == ""
    assert "cached tokens" in dense.differs(swapped, strict=True)
    assert Greedy({"uncached": one}).differs(Greedy({"uncached": one}), strict=False) == ""


def test_generation_that_raises_is_left_out_for_the_dense_model_alone():
    model = tiny_model("blt")
    assert greedy_of(model, ONE, tolerant=True).ways == ("uncached",)
    with pytest.raises(AttributeError):
        greedy_of(model, ONE)


def test_outcomes_are_read_back():
    for outcome in (OK, refused("a: b"), wrong("x\n y"), none("")):
        assert Outcome.parse(str(outcome)) == outcome
    assert str(wrong("x\n y")) == "wrong: x y"


def raising(error):
    def case():
        raise error

    return case


def test_whatever_is_raised_is_an_outcome():
    assert settle(raising(UnsupportedModelError("no"))) == refused("no")
    assert settle(raising(KeyError("k"))) == wrong("KeyError: 'k'")


def test_refusing_after_writing_is_wrong(tmp_path, monkeypatch):
    def leaves(dense, mask, out, check, format):
        out.mkdir()
        raise UnsupportedModelError("too late")

    monkeypatch.setattr(conformance_subject, "export", leaves)
    outcome = Subject("llama", tmp_path).export_and_judge((1,))
    assert outcome.status == Status.WRONG
    assert "written" in outcome.why


def test_complaints_name_the_keys():
    assert complaints({"missing_keys": set(), "unexpected_keys": []}) == ""
    assert complaints({"missing_keys": {"b", "a"}}) == "missing_keys a, b"


def rows():
    good, bad = Row("llama", "llama", "D"), Row("gpt2[x]", "gpt2", "D", ["transformer.h"])
    good.checks["sets"] = {"A": OK, "B": OK}
    bad.checks["sets"] = {"A": refused("gpt2 | -[1,3]: h.2.w"), "B": refused("gpt2 | -[0]: h.3.w")}
    bad.checks["singles"] = {"0": wrong("logits"), "1": OK}
    return [good, bad]


def test_reports_count_and_explain():
    good, bad = rows()
    assert Row.from_json(json.loads(json.dumps(bad.to_json()))) == bad
    found = counts([good, bad])
    assert found["types that pass sets"] == 1
    assert found["types that pass singles"] == 0
    assert (found["types"], found["rows with refusals"]) == (1, 1)
    assert "sets R" in line(bad)
    assert "singles X." in line(bad)
    text = summary([good, bad])
    assert "wrong gpt2[x] [singles 0]: logits" in text
    assert "refused gpt2[x] [sets A, sets B]: gpt2 | *: h.*.w" in text
    table = markdown([good, bad])
    assert "| llama | D |  | ok | – |  |" in table
    assert r"gpt2 \| *" in table


def test_command_line_goes_on_from_its_file(tmp_path, monkeypatch):
    def quick(subject):
        return {"A": OK}

    def later(subject):
        return {"A": OK}

    file, shown = tmp_path / "rows.json", []
    monkeypatch.setattr(conformance, "CHECKS", [quick])
    assert main(["llama", "--json", str(file)], shown.append) == 0
    before = json.loads(file.read_text())
    assert list(before[0]["checks"]) == ["quick"]
    assert len(shown) == 2
    assert main(["llama", "--json", str(file)], shown.append) == 0
    assert len(shown) == 3  # The summary alone.
    monkeypatch.setattr(conformance, "CHECKS", [quick, later])
    markdown_file = tmp_path / "rows.md"
    arguments = ["llama", "--json", str(file), "--markdown", str(markdown_file)]
    assert main(arguments, shown.append) == 0
    assert list(json.loads(file.read_text())[0]["checks"]) == ["quick", "later"]
    assert "| quick | later |" in markdown_file.read_text()
    monkeypatch.setattr(conformance, "CHECKS", [lambda subject: {"A": wrong("x")}])
    assert main(["llama"], shown.append) == 1
    with pytest.raises(SystemExit, match='Did you mean "llama"'):
        main(["lama"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_model_type():
    found = list(check_all(ZOO, {}, JOBS))
    assert len(found) == len(ZOO)
    passed = counts(found)
    told = summary(found)
    assert not passed["rows with wrong results"], told
    assert passed["types that pass sets"] >= 171, told
    assert passed["types that pass singles"] >= 172, told
    assert passed["types that fuse a half step"] >= 128, told
    assert all(check.__name__ in row.checks for row in found for check in CHECKS)
