"""A small lab model whose blocks all matter."""

import pytest
import torch

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel
from shoal.lab.stack import lab_stack, lab_texts


@pytest.fixture(scope="module")
def lab():
    """A lab model with a batch: stack, batch."""
    model = LabModel(LabModelConfig(layers=4, width=16, heads=2, points=7), seed=1)
    model.eval().requires_grad_(False)
    # So that every block matters.
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    prompts = draw_prompts(FamilyConfig(), 5, 7, 0)
    return lab_stack(model), lab_texts(prompts, "id").batches[0]
