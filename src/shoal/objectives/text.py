"""What objectives on text share: blocks of tokens of which every next one is scored."""

from shoal.core.errors import UsageError
from shoal.data.encode import EncodedText, encode_corpus
from shoal.data.items import Corpus
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.objectives.base import Described, ScoringObjective
from shoal.objectives.options import BuildOptions, in_parts
from shoal.objectives.text_batches import text_batches

PASSAGES = frozenset({"lambada"})
"""Tasks whose documents are scored one by one rather than packed into blocks."""

DEFAULT_TEXTS = 32
"""Blocks of calibration text where no limit is given."""


class TextObjective(ScoringObjective):
    """An objective that scores every token of a text; texts weigh by their scored tokens."""

    def prepare(self, data: Corpus, dense: DenseModel, options: BuildOptions) -> Described:
        """Cut the corpus into blocks."""
        positions = max_positions(dense.config)
        if positions is not None and options.length > positions:
            raise UsageError(
                f"blocks of {options.length} tokens do not fit {dense.source.id}, which has "
                f"{positions} positions. Use --length {positions} or less."
            )
        texts = encode_corpus(
            data,
            dense.require_tokenizer(),
            options.tokenisation,
            length=options.length,
            num_blocks=options.limit or DEFAULT_TEXTS,
            packing="documents" if data.name in PASSAGES else "packed",
        )
        self.take(texts, options)
        return Described(
            [[t.tokens, t.scored] for t in texts],
            {"blocks": len(texts), "length": options.length},
        )

    def take(self, texts: tuple[EncodedText, ...], options: BuildOptions) -> None:
        """Make micro-batches of texts."""
        self.batches, self.parts = in_parts(
            len(texts),
            options,
            lambda some: text_batches([texts[i] for i in some], options.batch_tokens),
        )
        self.num_examples = len(texts)
        lengths = [float(t.scored) for t in texts]
        self.weights = None if len(set(lengths)) == 1 else lengths
