"""Flags from the config tree: every field of a config class becomes a keyword-only parameter.

Flags that are not given stay None, so that only what the user said overrides a config file.
Options of a named part (`search`, `objective`) appear as `--search.samples 50`.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter

from shoal.config.base import Config, Named
from shoal.config.mixture import ALL_OBJECTIVES
from shoal.config.run import RunConfig
from shoal.config.searches import SEARCHES
from shoal.core.errors import UsageError

PARTS: dict[str, dict[str, type[Named]]] = {"objective": ALL_OBJECTIVES, "search": SEARCHES}

DANGER = Group("Danger", sort_key=99)
RISKY = frozenset({"allow_calibration_on_test", "overwrite"})


def with_config(
    cls: type[Config] = RunConfig, *, leave_out: Iterable[str] = ("model",)
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the fields of a config class as flags.

    The command receives them as one dictionary, `options`, of the flags that were given.

    Args:
        cls: The config class.
        leave_out: Fields that the command takes in a way of its own.
    """
    flags = _flags(cls, frozenset(leave_out))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command)
        kept = [p for p in own.parameters.values() if p.name != "options"]
        taken = {p.name for p in kept}
        positional = [p for p in kept if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        keyword = [p for p in kept if p.kind is inspect.Parameter.KEYWORD_ONLY]
        added = [p for p in flags if p.name not in taken]

        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            given = {p.name: kwargs.pop(p.name, None) for p in added}
            return command(*args, **kwargs, options=nested(given))

        run.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*positional, *keyword, *added]
        )
        return run

    return decorate


def nested(given: dict[str, Any]) -> dict[str, Any]:
    """Turn flags into config values: `{"search": "random", "search__samples": 5}` is nested."""
    values = {k: v for k, v in given.items() if v is not None and "__" not in k}
    for flag, value in given.items():
        if value is None or "__" not in flag:
            continue
        part, option = flag.split("__", 1)
        named = values.setdefault(part, {})
        if isinstance(named, str):
            named = values[part] = {"name": named}
        named[option] = value
    return values


def overlay(values: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Flags over the values of a file; options of a part join the part that the file names.

    Raises:
        UsageError: If an option belongs to a part that nobody named.
    """
    merged = values | options
    for part in PARTS:
        given = options.get(part)
        if not isinstance(given, dict) or "name" in given:
            continue
        below = values.get(part)
        if below is None:
            raise UsageError(f"--{part}.{next(iter(given))} needs --{part} NAME beside it.")
        merged[part] = ({"name": below} if isinstance(below, str) else dict(below)) | given
    return merged


def _flags(cls: type[Config], leave_out: frozenset[str]) -> list[inspect.Parameter]:
    found = []
    for name, field in cls.model_fields.items():
        if name in leave_out:
            continue
        kind = bool if field.annotation is bool else str
        text = field.description or ""
        if name in PARTS:
            text += f" ({', '.join(PARTS[name])})"
        elif shown := _shown(field.default):
            text += f" (default {shown})"
        found.append(_flag(name, f"--{name.replace('_', '-')}", kind, text, name in RISKY))
        for owner in PARTS.get(name, {}).values():
            for option, inner in owner.model_fields.items():
                key = f"{name}__{option}"
                if option not in ("name", "terms") and key not in {p.name for p in found}:
                    allowed = ", ".join(map(str, _choices(inner.annotation)))
                    note = f"{inner.description}{': ' * bool(allowed)}{allowed}"
                    note += f" (of {owner.model_fields['name'].default} ...)"
                    flag = f"--{name}.{option.replace('_', '-')}"
                    found.append(_flag(key, flag, str, note, False))
    return found


def _shown(default: Any) -> str:
    """A default as a user would write it; empty where there is nothing to say."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    plain = isinstance(default, str | int | float) and default is not False
    return str(default) if plain else ""


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of an option that takes one of a few."""
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _flag(name: str, flag: str, kind: type, text: str, risky: bool) -> inspect.Parameter:
    detail = Parameter(name=flag, help=text, negative="", show_default=False)
    if risky:
        detail = Parameter.combine(detail, Parameter(group=DANGER))
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, detail],
    )
