"""Made-up diagnoses with plausible numbers, for tests and examples of reports."""

from collections.abc import Sequence
from math import exp

import numpy as np

from shoal.core.mask import Mask, Part, Site
from shoal.core.plan import ModelRef
from shoal.core.records import Curve, Mean
from shoal.diagnosis.records import (
    Amplification,
    Diagnosis,
    Example,
    FreeRun,
    FreeRuns,
    Layerwise,
    Options,
    Retrieval,
    SiteRow,
    Subject,
    TeacherForced,
    TextMeasures,
)
from shoal.testing.diagnosis_verdicts import made_up_verdicts

PARTS = (
    "layerwise",
    "teacher_forced",
    "amplification",
    "free_runs",
    "choices",
    "retrieval",
    "verdicts",
)
"""The parts of a diagnosis that may be missing."""

STORY = "Once upon a time there was a small boat that nobody would take out to sea."


def made_up_diagnosis(
    seed: int = 0,
    *,
    parts: Sequence[str] = PARTS,
    depth: int = 30,
    prompts: int = 32,
    steps: int = 64,
    sublayers: bool = True,
    blocks: bool = True,
    local: bool = True,
    final: bool = True,
    candidates: bool = True,
    mask: Mask | None = None,
    checkpoint: bool = False,
) -> Diagnosis:
    """A diagnosis of a model that was never run.

    Args:
        seed: Seed of the numbers.
        parts: Which of `PARTS` are there; the others are empty.
        depth: Blocks of the dense model; at least 5, or 2 with a mask.
        prompts: Prompts behind each mean; with one there are no intervals.
        steps: Tokens that were written.
        sublayers: Whether attentions and MLPs were looked at.
        blocks: Whether whole blocks were.
        local: Whether sites have quantities at the site.
        final: Whether they have quantities at the model's end.
        candidates: Whether answer tokens were looked at.
        mask: What the plan removes; by default two blocks and an attention.
        checkpoint: Whether another checkpoint is compared instead of a plan.
    """
    made = _Maker(seed, prompts, steps, candidates)
    removed = [Site(depth // 3), Site(depth // 3 + 1), Site(depth - 2, Part.ATTN)]
    mask = mask or Mask(depth, frozenset(removed))
    units = [Site.parse(f"{i}.{part}") for i in range(depth) for part in ("attn", "mlp")]
    sites = [Site(i) for i in range(depth)] * blocks + units * sublayers
    other = Subject(
        name="org/other-model" if checkpoint else "runs/margin/plan.json",
        kind="checkpoint" if checkpoint else "plan",
        mask=None if checkpoint else mask,
        objective=None if checkpoint else "margin:arc_easy",
        depth=depth if checkpoint else len(mask.kept),
        parameters=134_515_008 - (0 if checkpoint else 3_540_000 * mask.num_blocks),
    )
    return Diagnosis(
        dense=ModelRef(id="smollm2-135m", fingerprint="0123456789abcdef"),
        dense_depth=depth,
        dense_parameters=134_515_008,
        other=other,
        settings={
            "prompts": {"name": "gsm8k", "split": "train", "limit": prompts},
            "temperatures": [0.5, 1.0, 2.0],
            "steps": steps,
            "seeds": [0, 1, 2],
            "data_dir": None,
        },
        layerwise=made.layerwise(sites, mask, local, final) if "layerwise" in parts else None,
        teacher_forced=made.teacher_forced() if "teacher_forced" in parts else None,
        amplification=made.amplification() if "amplification" in parts else (),
        free_runs=made.free_runs() if "free_runs" in parts else None,
        choices=made.choices() if "choices" in parts else (),
        retrieval=made.retrieval() if "retrieval" in parts else (),
        verdicts=made_up_verdicts(intervals=prompts > 1) if "verdicts" in parts else (),
        notes=("3 prompts were shortened to 512 tokens.",),
        environment={"torch": "2.13.0", "transformers": "5.24.0", "device": "cpu"},
        seconds={"layerwise": 71.2, "free_runs": 140.0},
        shoal_version="0",
    )


class _Maker:
    """Numbers from one generator; the same calls in the same order give the same numbers."""

    def __init__(self, seed: int, prompts: int, steps: int, candidates: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.prompts = prompts
        self.steps = steps
        self.candidates = candidates

    def mean(self, value: float, spread: float = 0.15, most: float = float("inf")) -> Mean:
        """A mean near a value, with an interval in proportion to it."""
        value = min(value * float(self.rng.lognormal(0.0, 0.1)), most)
        if self.prompts < 2:
            return Mean(value=value, low=None, high=None, count=self.prompts)
        half = spread * abs(value)
        return Mean(value=value, low=value - half, high=min(value + half, most), count=self.prompts)

    def share(self, value: float) -> Mean:
        """A share with an interval within 0 and 1."""
        value = min(max(value + float(self.rng.normal(0, 0.01)), 0.0), 1.0)
        if self.prompts < 2:
            return Mean(value=value, low=None, high=None, count=self.prompts)
        half = 1.96 * (value * (1 - value) / self.prompts) ** 0.5
        return Mean(
            value=value, low=max(value - half, 0), high=min(value + half, 1), count=self.prompts
        )

    def change(self, value: float, half: float) -> Mean:
        """A difference, which may be negative."""
        if self.prompts < 2:
            return Mean(value=value, low=None, high=None, count=self.prompts)
        return Mean(value=value, low=value - half, high=value + half, count=self.prompts)

    def curve(self, values: Sequence[float]) -> Curve:
        """A curve with noise; fewer prompts are behind later steps."""
        found = [self.mean(v) for v in values]
        return Curve(
            steps=tuple(range(1, len(found) + 1)),
            value=tuple(m.value for m in found),
            low=tuple(m.low for m in found),
            high=tuple(m.high for m in found),
            count=tuple(max(1, self.prompts - i // 8) for i in range(len(found))),
        )

    def quantities(self, size: float) -> dict[str, Mean]:
        """Quantities for a change of hidden states of about a size (1 - cosine)."""
        kl = 12 * size / (1 + size)
        values = {
            "hidden_gap": size,
            "hidden_parallel": -size / 2,
            "hidden_orthogonal": (2 * size) ** 0.5,
            "hidden_estimate": size * (1 + size),
            "logit_gap": 0.3 * size,
            "logit_orthogonal": (0.6 * size) ** 0.5,
            "logit_estimate": 0.3 * size * (1 + size),
            "logit_change": 3 * size**0.5,
            "attenuation": 0.3**0.5,
            "probability_gap": min(2.5 * size, 1.0),
            "probability_estimate": 2.5 * size * (1 + 2 * size),
            "kl": kl,
            "kl_estimate": kl * (1 + size),
            "kl_reverse": kl * (1 + 0.2 * size),
            "total_variation": min((kl / 2) ** 0.5, 1.0),
            "flip": min(2 * size, 1.0),
            "entropy": 1.8,
            "amplification": 8.0,
        }
        if self.candidates:
            values |= {
                "subspace_mass": 1e-3,
                "subspace_gap": 0.4 * size,
                "subspace_kl": 0.8 * size,
                "subspace_flip": 0.6 * min(size, 1.0),
                "subspace_floor": 8e-4 * size,
            }
        return {name: self.mean(value) for name, value in values.items()}

    def layerwise(self, sites: Sequence[Site], mask: Mask, local: bool, final: bool) -> Layerwise:
        """Changes that are large at both ends of the model and small between."""
        rows = []
        for site in sites:
            x = site.layer / (mask.depth - 1)
            size = 0.01 + 0.6 * exp(-25 * x) + 0.15 * exp(-18 * (1 - x))
            size *= {"block": 1.6, "attn": 0.6, "mlp": 1.0}[site.part.value]
            size *= float(self.rng.lognormal(0, 0.3))
            rows.append(
                SiteRow(
                    site=str(site),
                    removed=site in mask.removed or site in mask.sublayers,
                    normed=self.quantities(size) if local else {},
                    raw=self.quantities(0.8 * size) if local else {},
                    final=self.quantities(0.6 * size) if final else {},
                )
            )
        return Layerwise(
            mode="dropped", prompts=self.prompts, positions=4 * self.prompts, sites=tuple(rows)
        )

    def teacher_forced(self) -> TeacherForced:
        """Errors that stay level along the dense model's text."""
        names = ("hidden_gap", "logit_gap", "probability_gap", "kl", "flip")
        size = 0.08
        level = self.quantities(size)
        return TeacherForced(
            overall=level,
            short=self.quantities(0.9 * size),
            short_steps=min(16, self.steps),
            steps={n: self.curve([level[n].value] * self.steps) for n in names},
            dense_nll=self.mean(0.45),
            other_nll=self.mean(1.3),
            sequence_kl=self.mean(level["kl"].value * self.steps),
        )

    def amplification(self) -> tuple[Amplification, ...]:
        """Amplification that falls with the temperature."""
        return tuple(
            Amplification(
                temperature=t,
                ratio=9.0 / t**1.8,
                measured=6.0 / t**1.7,
                predicted=11.0 / t**2,
                amplified=0.97 - 0.1 * t,
                predicted_amplified=0.99 - 0.05 * t,
                rank_correlation=0.61,
                means={
                    "kl": self.mean(0.9 / t),
                    "probability_gap": self.mean(0.2 / t),
                    "logit_gap": self.mean(0.024),
                },
            )
            for t in (0.5, 1.0, 2.0)
        )

    def text(self, broken: float) -> TextMeasures:
        """Measures of texts that are broken to a degree from 0 to 1."""
        return TextMeasures(
            length=self.mean(0.9 * self.steps, most=float(self.steps)),
            ended=self.share(0.4 * (1 - broken)),
            distinct_1=self.share(0.62 - 0.35 * broken),
            distinct_2=self.share(0.9 - 0.5 * broken),
            distinct_3=self.share(0.95 - 0.5 * broken),
            longest_repeat=self.share(0.1 + 0.6 * broken),
            looping=self.share(0.05 + 0.7 * broken),
            surprise=self.mean(0.5 + 2.5 * broken),
        )

    def free_run(self, name: str, control: bool, sampled: bool, rate: float) -> FreeRun:
        """One pair of runs that parts at a rate per step."""
        diverged = [1 - exp(-rate * (i + 1)) for i in range(self.steps)]
        seed_only = control and sampled and rate > 0.3
        shares = [self.share(v) for v in diverged]
        broken = 0.0 if control else 0.7
        return FreeRun(
            name=name,
            control=control,
            decoding="sampled" if sampled else "greedy",
            temperature=1.0,
            seeds=(0, 1, 2) if sampled else (),
            diverged=Curve(
                steps=tuple(range(1, self.steps + 1)),
                value=tuple(np.maximum.accumulate([s.value for s in shares]).tolist()),
                low=tuple(s.low for s in shares),
                high=tuple(s.high for s in shares),
                count=(self.prompts,) * self.steps,
            ),
            first_divergence=self.mean(min(1 / rate, self.steps)),
            flip_rate=self.share(diverged[-1] * 0.9),
            before=self.quantities(0.0 if seed_only else 0.002 if control else 0.09),
            after=self.quantities(0.7),
            steps={"kl": self.curve([9 * v for v in diverged])},
            dense_text=self.text(0.0),
            other_text=self.text(broken),
            text_change={
                "distinct_2": self.change(-0.5 * broken, 0.05),
                "looping": self.change(0.7 * broken, 0.1),
                "surprise": self.change(2.5 * broken, 0.3),
            },
        )

    def free_runs(self) -> FreeRuns:
        """The pruned model and two controls."""
        runs = (
            self.free_run("pruned", False, False, 0.25),
            self.free_run("bfloat16 copy", True, False, 0.012),
            self.free_run("pruned", False, True, 0.3),
            self.free_run("dense, another seed", True, True, 0.45),
            self.free_run("bfloat16 copy", True, True, 0.02),
        )
        loop = STORY[:39] + " the boat the boat the boat the boat the boat"
        examples = (
            Example(prompt="Tell a story.", dense=STORY, other=loop, first_divergence=9),
            Example(prompt="What is 6 times 7?", dense="42.", other="42.", first_divergence=None),
        )
        return FreeRuns(runs=runs, examples=examples)

    def choices(self) -> tuple[Options, ...]:
        """Two tasks, each under two scorings."""
        return tuple(
            Options(
                task=task,
                split="test",
                scoring=scoring,
                items=200,
                accuracy_dense=self.share(0.62),
                accuracy_other=self.share(0.58),
                accuracy_change=self.change(-0.04, 0.03),
                kept=self.share(0.85),
                inside={"subspace_kl": self.mean(0.06), "subspace_gap": self.mean(0.03)},
                vocabulary={
                    "kl": self.mean(0.9),
                    "probability_gap": self.mean(0.3),
                    "subspace_mass": self.mean(0.02),
                    "subspace_floor": self.mean(0.0012),
                },
            )
            for task in ("arc_easy", "openbookqa")
            for scoring in ("options", "letters")
        )

    def retrieval(self) -> tuple[Retrieval, ...]:
        """Both poolings."""
        return tuple(
            Retrieval(
                pooling=pooling,
                texts=128,
                neighbours=10,
                overlap=self.share(0.8 - loss),
                rank_correlation=self.share(0.95 - loss),
                found_dense=self.share(0.7),
                found_other=self.share(0.68 - loss),
                found_change=self.change(-0.02 - loss, 0.03),
                hidden_gap=self.mean(0.03 + loss),
            )
            for pooling, loss in (("mean", 0.0), ("last", 0.15))
        )
