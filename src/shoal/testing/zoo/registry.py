"""All recipes by name, and the model types that have none."""

from shoal.testing.zoo.decoders_dense import DENSE
from shoal.testing.zoo.decoders_experts import EXPERTS
from shoal.testing.zoo.decoders_hybrid import HYBRID
from shoal.testing.zoo.decoders_indexed import INDEXED
from shoal.testing.zoo.decoders_windows import WINDOWS
from shoal.testing.zoo.encoders import DECODERS, ENCODERS
from shoal.testing.zoo.multimodal import MULTIMODAL
from shoal.testing.zoo.recipe import Recipe
from shoal.testing.zoo.variants import VARIANTS

TYPES: dict[str, Recipe] = dict(
    sorted(
        (DENSE | WINDOWS | EXPERTS | INDEXED | HYBRID | ENCODERS | DECODERS | MULTIMODAL).items()
    )
)
"""Model type -> recipe."""

ZOO: dict[str, Recipe] = dict(sorted((TYPES | VARIANTS).items()))
"""Model type, or variant of one as `type[difference]` -> recipe."""

UNMEASURED: dict[str, str] = {
    "emu3": "AutoModelForCausalLM cannot reload what it saves: emu3_text_model is not registered",
    "gemma3n": "its vision tower needs timm; the text part is gemma3n_text",
    "gemma4_assistant": "a drafter, which reads the keys and values of the model it drafts for",
    "gemma4_unified_assistant": "a drafter, which reads the states of the model it drafts for",
    "mllama": "AutoModelForCausalLM cannot reload what it saves: mllama_text_model is not "
    "registered",
    "musicgen": "AutoModelForCausalLM gives the composite config to the decoder, which has no "
    "field `dropout` in it",
    "musicgen_melody": "AutoModelForCausalLM gives the composite config to the decoder, which has "
    "no field `dropout` in it",
    "xlm": "its blocks are no modules: attention, MLPs and norms lie in parallel lists",
}
"""Model type of a causal LM -> why no tiny model of it is measured."""
