"""The model card: metadata that the hub reads, and the facts of the pruning."""

import pytest
import yaml

from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan, Score
from shoal.surgery.card import Result, model_card
from shoal.surgery.sidecars import front_matter, licence_of

MASK = Mask.of(8, [2, 3, 6])


def metadata(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_metadata_names_the_base_model_and_its_licence():
    card = model_card("org/Big-8B", "abc123", MASK, None, 1000, 640, licence="apache-2.0")
    assert metadata(card) == {
        "license": "apache-2.0",
        "base_model": "org/Big-8B",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["pruning", "depth-pruning", "shoal"],
    }
    assert "# Big-8B without 3 of 8 blocks" in card
    assert "abc123" in card


def test_a_name_that_is_no_hub_id_is_not_linked():
    assert "base_model" not in metadata(model_card("folder", None, MASK, None, 2, 1))


def test_body_lists_blocks_parameters_and_how_to_load():
    card = model_card("org/m", None, MASK, None, 1_000_000, 640_000)
    assert "| removed | 2, 3, 6 |" in card
    assert "| kept | 0, 1, 4, 5, 7 |" in card
    assert "1,000,000 -> 640,000 (-36.0%)" in card
    assert "AutoModelForCausalLM.from_pretrained" in card
    assert "## Results" not in card
    assert "## How the blocks" not in card


def test_plan_and_results_are_told():
    plan = Plan(
        model=ModelRef(id="org/m", fingerprint="f"),
        mask=MASK,
        objective="margin:arc_easy",
        search={"name": "beam", "width": 4},
        score=Score(mean=0.5, dense=0.25, examples=64),
        evaluations=120,
        data={"task": "arc_easy", "split": "train"},
        seed=7,
    )
    results = [Result("arc_easy, accuracy", 0.61, 0.58)]
    card = model_card("org/m", None, MASK, plan, 2, 1, results, notes=["A note."])
    assert "margin:arc_easy" in card
    assert "name=beam, width=4" in card
    assert "split=train" in card
    assert "| masks evaluated | 120 |" in card
    assert "0.5000, dense 0.2500, 64 examples" in card
    assert "| arc_easy, accuracy | 0.6100 | 0.5800 | -0.0300 |" in card
    assert "A note." in card


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\nlicense: mit\ntags: [a]\n---\n# m", {"license": "mit"}),
        ("---\nlicense_name: x\nlicense_link: y\n---", {"license_name": "x", "license_link": "y"}),
        ("# no front matter\n---\nlicense: mit\n---\n", {}),
        ("---\n: [broken\n---\n", {}),
        ("---\njust text\n---\n", {}),
    ],
)  # fmt: skip
def test_licence_is_read_from_the_front_matter(text, expected, tmp_path):
    (tmp_path / "README.md").write_text(text)
    assert licence_of(tmp_path) == expected


def test_no_card_no_licence(tmp_path):
    assert front_matter(tmp_path) == {} == licence_of(None)
