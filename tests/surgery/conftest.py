"""Tiny dense models, built once."""

from functools import cache

import pytest

from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.testing.tiny import tiny_model, tiny_tokenizer


@cache
def _dense(family: str) -> DenseModel:
    return load_dense(tiny_model(family), tokenizer=tiny_tokenizer())


@pytest.fixture(scope="session")
def tiny_dense():
    """Family -> its tiny dense model; shared, so a test must not change it."""
    return _dense
