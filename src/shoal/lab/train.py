"""Training a lab model: squared error over all prefixes of prompts that are drawn anew each step.

The functions of a step follow from the seed and the step alone, so a run that was killed and goes
on sees what it would have seen.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.config.lab import TrainConfig
from shoal.core.errors import NotFiniteError
from shoal.lab.functions import Prompts, draw_prompts
from shoal.lab.model import LabModel
from shoal.lab.streams import TRAINING, VALIDATION

VALIDATION_FUNCTIONS = 128


@dataclass(frozen=True)
class LogRow:
    """One line of the training log.

    Attributes:
        step: Steps done.
        points: Pairs in the prompts of the last of them.
        loss: Training loss, mean over the steps since the last line.
        validation: Squared error on held-out functions with all points, mean over prefixes.
        last: The same at the last point of each prompt.
        learning_rate: Of the last step.
        seconds: Wall time so far, over all runs.
    """

    step: int
    points: int
    loss: float
    validation: float
    last: float
    learning_rate: float
    seconds: float


def squared_errors(model: LabModel, prompts: Prompts, batch: int = 256) -> Tensor:
    """Squared error at each point [B, n]; point i is predicted from i points before it."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(prompts), batch):
            part = prompts.rows(start, start + batch)
            found.append((model(part.x, part.y) - part.y) ** 2)
    return torch.cat(found)


class Training:
    """A model on its way.

    Args:
        config: The options.
        device: Where it is trained.
    """

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.model = LabModel(config.model, config.seed).to(device)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=config.learning_rate, foreach=True
        )
        self.step = 0
        self.seconds = 0.0
        self._held_out = self._prompts(
            VALIDATION_FUNCTIONS, config.points, (config.seed, VALIDATION)
        )

    def run(self, log_every: int) -> Iterator[LogRow]:
        """Train to the end; yields after every `log_every` steps, and after the last.

        Raises:
            NotFiniteError: If the loss is no longer a number.
        """
        losses: list[Tensor] = []
        since = time.monotonic()
        while self.step < self.config.steps:
            losses.append(self._one_step())
            self.step += 1
            if self.step % log_every == 0 or self.step == self.config.steps:
                loss = torch.stack(losses).mean().item()
                if not math.isfinite(loss):
                    raise NotFiniteError(
                        f"the training loss is not finite at step {self.step}. Lower "
                        "--learning-rate, set --clip, or add --warmup."
                    )
                self.seconds += time.monotonic() - since
                yield self._row(loss)
                losses, since = [], time.monotonic()

    def _one_step(self) -> Tensor:
        config = self.config
        prompts = self._prompts(
            config.batch, config.points_at(self.step), (config.seed, TRAINING, self.step)
        )
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(config, self.step)
        loss = ((self.model(prompts.x, prompts.y) - prompts.y) ** 2).mean()
        self.optimiser.zero_grad()
        loss.backward()
        if config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimiser.step()
        return loss.detach()

    def _row(self, loss: float) -> LogRow:
        errors = squared_errors(self.model, self._held_out)
        return LogRow(
            step=self.step,
            points=self.config.points_at(self.step - 1),
            loss=loss,
            validation=errors.mean().item(),
            last=errors[:, -1].mean().item(),
            learning_rate=rate_at(self.config, self.step - 1),
            seconds=self.seconds,
        )

    def _prompts(self, count: int, points: int, seed: tuple[int, ...]) -> Prompts:
        drawn = draw_prompts(self.config.family, count, points, seed)
        return Prompts(
            drawn.x.to(self.device), drawn.y.to(self.device), drawn.coefficients.to(self.device)
        )

    def state(self) -> dict[str, Tensor]:
        """Weights and the optimiser's averages, by name."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            found[f"weight.{name}"] = parameter
            for key in ("exp_avg", "exp_avg_sq", "step"):
                found[f"{key}.{name}"] = self.optimiser.state[parameter][key]
        return found

    def restore(self, tensors: dict[str, Tensor], step: int, seconds: float) -> None:
        """Go on from what `state` gave."""
        self.step, self.seconds = step, seconds
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"weight.{name}"])
                self.optimiser.state[parameter] = {
                    "step": tensors[f"step.{name}"].cpu(),
                    **{
                        key: tensors[f"{key}.{name}"].to(self.device)
                        for key in ("exp_avg", "exp_avg_sq")
                    },
                }


def rate_at(config: TrainConfig, step: int) -> float:
    """The learning rate of a step, counted from 0."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    if config.decay == "none":
        return config.learning_rate
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * (1 + math.cos(math.pi * done)) / 2
