"""Tiny tokenizers and files in the schemas of the hub."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

TEXT = (
    "The quick brown fox jumps over the lazy dog.\n",
    "Question: which of these is a planet?\nAnswer: the planet is Mars.\n",
    "It was the best of times, it was the worst of times.\n",
)


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE that has BOS and EOS and adds neither."""
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level(), bos_token="<s>", eos_token="</s>"
    )


@pytest.fixture(scope="session")
def bos_tokenizer() -> PreTrainedTokenizerFast:
    """The same, but it puts BOS first and EOS last."""
    backend = _byte_level()
    ends = [(t, backend.token_to_id(t)) for t in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A $B </s>", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="session")
def bare_tokenizer() -> PreTrainedTokenizerFast:
    """The same without any special token; it also deletes every "~"."""
    backend = _byte_level()
    backend.normalizer = normalizers.Replace("~", "")
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.fixture(scope="session")
def merging_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that merges across everything: "ab" and "abc" are one token each."""
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "c")]))
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSON lines, or text as it is, below the test's folder."""

    def _write(name: str, content: Iterable[Any] | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_text(content, encoding="utf-8")
        return path

    return _write


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    """The files of the benchmarks."""
    return shared / "data"
