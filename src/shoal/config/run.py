"""The options of a run: what to prune, for which objective, how to search, where to write."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from shoal.config import amounts
from shoal.config.base import Config, pick
from shoal.config.mixture import ALL_OBJECTIVES, MixtureConfig, Term, read_objective
from shoal.config.objectives import NllConfig, ObjectiveConfig
from shoal.config.searches import SEARCHES, GreedyConfig, SearchConfig
from shoal.core.errors import UsageError
from shoal.core.units import plural

ObjectiveField = Annotated[
    SerializeAsAny[ObjectiveConfig],
    BeforeValidator(lambda v: pick("objective", ALL_OBJECTIVES, v)),
]
SearchField = Annotated[
    SerializeAsAny[SearchConfig], BeforeValidator(lambda v: pick("search", SEARCHES, v))
]


MOST_BLOCKS = 100_000
"""Where a block index must be a slip of the hand."""


def _integers(value: Any) -> Any:
    """Read `0,29` or `0-2,29` as a tuple of integers."""
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, str):
        return value
    numbers: list[int] = []
    for part in filter(None, (p.strip() for p in value.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f'"{part}" is no block. Write block indices as 0,1,29 or 0-2,29.')
        if int(last or first) < int(first):
            raise ValueError(
                f'"{part}" runs backwards. Write the lower block first: {last}-{first}.'
            )
        if int(last or first) > MOST_BLOCKS:
            raise ValueError(f'"{part}" names more blocks than any model has.')
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _count(value: Any) -> Any:
    """Leave a number that is no count to the message of `num_removed`."""
    return str(value) if isinstance(value, float | bool) else value


def names(value: Any) -> Any:
    """Read `a,b` or `a b` as a tuple of names."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


class ModelOptions(Config):
    """Which model, and how to hold it."""

    model: str | None = Field(
        None, description="hub id (org/name@revision), folder, GGUF file, or smollm2-135m"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    dtype: str = Field("auto", description="auto (the checkpoint's), float32, bfloat16 or float16")
    batch_tokens: int = Field(
        2048, ge=1, description="positions per micro-batch; more is faster on large devices"
    )


class DataOptions(Config):
    """Where data come from and how they are tokenised."""

    data_dir: str | None = Field(
        None, description="folder with one folder per task in the hub's schema, or 'embedded'"
    )
    length: int = Field(512, ge=2, description="tokens per block of text")
    bos: Literal["auto", "always", "never"] = Field(
        "auto", description="put BOS first: as the tokenizer does, always, or never"
    )
    allow_calibration_on_test: bool = Field(
        False, description="calibrate on a benchmark's test split, which makes its score worthless"
    )


class RunConfig(ModelOptions, DataOptions):
    """Everything that `shoal prune`, `shoal search` and `shoal run` do."""

    objective: ObjectiveField = Field(NllConfig(), description="what the model must stay good at")
    task: str | None = Field(
        None, description="calibration data: a task (see shoal ls tasks) or a file"
    )
    split: str | None = Field(None, description="calibration split; the task's own by default")
    limit: int | None = Field(
        None, ge=1, description="calibration examples: blocks of text (32) or items (128)"
    )
    search: SearchField = Field(GreedyConfig(), description="how masks are searched")
    remove: Annotated[int | str | None, BeforeValidator(_count)] = Field(
        None, description="blocks to remove, or other units of the granularity: a count, or 20%"
    )
    remove_params: Annotated[int | str | None, BeforeValidator(_count)] = Field(
        None, description="parameters to remove: 20% of the model's, or 25M, 1.2B"
    )
    remove_time: Annotated[int | str | None, BeforeValidator(_count)] = Field(
        None, description="time to remove: 20% of a forward pass, as measured here"
    )
    granularity: Literal["auto", "block", "half", "attn", "mlp", "attn+mlp", "mixed"] = Field(
        "auto",
        description="what one step removes; auto is half steps where they exist, else blocks",
    )
    fusable: bool = Field(
        False, description="keep attention and MLP alternating, so that the rest fuses into blocks"
    )
    protect: Annotated[tuple[int, ...], BeforeValidator(_integers)] = Field(
        (), description="blocks that must stay, e.g. 0,29"
    )
    seed: int = Field(0, ge=0, description="seed of everything random")
    budget_evaluations: int | None = Field(
        None, ge=1, description="end the search after this many masks; the best so far is the plan"
    )
    budget_minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="end the search after this time; the best so far is the plan",
    )
    racing: bool = Field(
        False, description="judge losing masks on part of the calibration data, by paired tests"
    )
    racing_error: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="chance that racing drops a mask which the full data would have chosen",
    )
    cache_memory: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="GB for hidden states kept between rounds; default a fifth of free",
    )
    run_dir: Path | None = Field(None, description="folder of the run; resumes what lies there")
    store: Path | None = Field(
        None, description="file of evaluations, to share them between runs; one per run by default"
    )
    out: Path | None = Field(None, description="folder for the pruned checkpoint")
    overwrite: bool = Field(False, description="replace the folder of the checkpoint")
    evaluate: Annotated[tuple[str, ...], BeforeValidator(names)] = Field(
        (), description="tasks to report on; the calibration task's report split by default"
    )
    evaluate_limit: int | None = Field(
        None, ge=1, description="report examples per task: blocks of text (64) or items (all)"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_line_objective(cls, values: Any) -> Any:
        """Take the task out of an objective that is written `margin:arc_easy`."""
        if not isinstance(values, dict) or "objective" not in values:
            return values
        objective = read_objective(values["objective"])
        values = {**values, "objective": objective}
        if isinstance(objective, dict) and objective.get("name") != "mixture":
            objective = dict(objective)
            task = objective.pop("task", None)
            if task is not None:
                given = values.get("task")
                if given not in (None, task):
                    raise UsageError(
                        f"the objective names the task {task}, but --task says {given}. "
                        "Leave one out."
                    )
                values |= {"objective": objective, "task": task}
        return values

    @model_validator(mode="after")
    def _a_mixture_names_its_tasks(self) -> "RunConfig":
        if self.task is not None and isinstance(self.objective, MixtureConfig):
            raise ValueError(
                "a mixture names its tasks itself, as in 0.7*margin:arc_easy + 0.3*kl:wikitext2."
            )
        return self

    @property
    def weighs(self) -> bool:
        """Whether the budget is in parameters or time."""
        return self.remove_params is not None or self.remove_time is not None

    @property
    def terms(self) -> tuple[Term, ...]:
        """What the objective consists of, each term with its own data; one unless a mixture."""
        if isinstance(self.objective, MixtureConfig):
            own = {"split": self.split, "limit": self.limit}
            return tuple(
                t.model_copy(update={k: v for k, v in own.items() if getattr(t, k) is None})
                for t in self.objective.terms
            )
        return (Term(objective=self.objective, task=self.task, split=self.split, limit=self.limit),)

    @property
    def expression(self) -> str:
        """The objective as an expression, e.g. `margin:arc_easy`."""
        mixed = isinstance(self.objective, MixtureConfig)
        return str(self.objective) if mixed else str(self.terms[0])

    def num_removed(self, total: int, noun: str = "block") -> int:
        """How many of `total` units to remove.

        A percentage is taken exactly and rounded down.

        Raises:
            UsageError: If nothing was asked, the text is no number, or a share is under one unit.
        """
        if self.remove is None:
            raise UsageError(
                f"say how many {plural(noun)} to remove: --remove 7, or --remove 20%; or how much "
                "with --remove-params 20% or --remove-time 20%."
            )
        text = str(self.remove).strip()
        try:
            if not text.endswith("%"):
                return int(text)
            count = int(Fraction(text[:-1]) / 100 * total)
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(
                f'remove is "{text}", which is neither a count (7) nor a percentage (20%).'
            ) from error
        if count < 1:
            raise UsageError(f"{text} of {total} {plural(noun)} is less than one {noun}.")
        return count

    def share_removed(self, parameters: float) -> float | None:
        """The share of a model's parameters or time to remove; None where neither was asked for.

        Args:
            parameters: Parameters of the model.

        Raises:
            UsageError: If the amount is none, nothing, or all of the model.
        """
        if self.remove_params is not None:
            flag = "--remove-params"
            return amounts.parameters(flag, str(self.remove_params), parameters) / parameters
        if self.remove_time is not None:
            return amounts.share("--remove-time", str(self.remove_time))
        return None

    def require_model(self) -> str:
        """The model.

        Raises:
            UsageError: If none was named.
        """
        if self.model is None:
            raise UsageError(
                'no model was named. Put "model: smollm2-135m" in the config, or give it first.'
            )
        return self.model


class _Strict(yaml.SafeLoader):
    """Refuses a key that stands twice, of which the last would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key {twice!r} stands there twice")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a config file.

    Raises:
        UsageError: If it is missing or holds no mapping.
    """
    if not path.is_file():
        raise UsageError(f"there is no config at {path}.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_Strict)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds no options; write them as `key: value`, one a line.")
    return values
