import json

import pytest
from transformers import PreTrainedTokenizerFast

from shoal.core.errors import UsageError
from shoal.data import Tokenisation


def test_auto_adds_bos_where_the_tokenizer_does(
    tokenizer: PreTrainedTokenizerFast, bos_tokenizer: PreTrainedTokenizerFast
) -> None:
    assert Tokenisation().prefix(tokenizer) == ()
    assert Tokenisation().prefix(bos_tokenizer) == (bos_tokenizer.bos_token_id,)


def test_always_and_never(
    tokenizer: PreTrainedTokenizerFast, bos_tokenizer: PreTrainedTokenizerFast
) -> None:
    assert Tokenisation("always").prefix(tokenizer) == (tokenizer.bos_token_id,)
    assert Tokenisation("never").prefix(bos_tokenizer) == ()


def test_always_needs_a_bos_token(bare_tokenizer: PreTrainedTokenizerFast) -> None:
    assert Tokenisation().prefix(bare_tokenizer) == ()
    with pytest.raises(UsageError, match="the tokenizer has no BOS token"):
        Tokenisation("always").prefix(bare_tokenizer)


def test_unknown_policy() -> None:
    with pytest.raises(UsageError, match='unknown BOS policy "maybe"'):
        Tokenisation("maybe")  # type: ignore[arg-type]


def test_description_is_json(bos_tokenizer: PreTrainedTokenizerFast) -> None:
    described = Tokenisation().describe(bos_tokenizer)
    assert json.loads(json.dumps(described)) == described
    assert described["bos"] is True
    assert described["bos_id"] == bos_tokenizer.bos_token_id
    assert described["seam"] == "joint, as lm-eval"
