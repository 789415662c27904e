"""What all parts of the config tree share: frozen, no unknown keys, errors that name the fix."""

import importlib
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from shoal.core.errors import UsageError, closest, unknown_name


class Config(BaseModel):
    """A frozen part of the config tree; unknown keys are refused with the closest name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Validate values, turning every complaint into one clear error.

        Raises:
            UsageError: If a key is unknown or a value is not allowed.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise UsageError(explain(error, cls)) from error


class Named(Config):
    """A config that names what it configures; its class is the registry entry.

    Attributes:
        implementation: Where the code is, as `module:attribute`, imported at first use.
        summary: One line for `shoal ls`.
    """

    implementation: ClassVar[str]
    summary: ClassVar[str]
    name: str

    def load(self) -> Any:
        """Import what this configures."""
        module, attribute = self.implementation.split(":")
        return getattr(importlib.import_module(module), attribute)


def registry(*classes: type[Named]) -> dict[str, type[Named]]:
    """Name -> config class, in the order given."""
    return {cls.model_fields["name"].default: cls for cls in classes}


def pick(kind: str, known: dict[str, type[Named]], value: Any) -> Named:
    """Build a named config from a config, a name, or a mapping with a name and options.

    Raises:
        UsageError: If the name is unknown or an option is not allowed.
    """
    if isinstance(value, Named):
        return value
    options = {"name": value} if isinstance(value, str) else value
    name = options.get("name") if isinstance(options, dict) else None
    if not isinstance(name, str):
        raise UsageError(f"the {kind} needs a name. Known: {', '.join(known)}.")
    if name not in known:
        raise unknown_name(kind, name, known)
    for option in options:
        owners = [n for n, cls in known.items() if option in cls.model_fields]
        if owners and name not in owners:
            raise UsageError(
                f"the {kind} {name} has no option {option}; it is one of {', '.join(owners)}."
            )
    return known[name].read(options)


def explain(error: ValidationError, cls: type[BaseModel]) -> str:
    """The first complaint of a validation error as one sentence, and how many more there are."""
    complaints = error.errors()
    first = complaints[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = list(cls.model_fields)
        text = f'unknown key "{key}".{closest(key, known)} Known: {", ".join(sorted(known))}.'
    elif first["type"] == "missing":
        text = f'"{key}" is missing.'
    else:
        message = first["msg"].removeprefix("Value error, ")
        text = (f"{key}: " if key else "") + message + ("" if message.endswith(".") else ".")
        if first["type"] not in ("value_error",):
            text += f" Given: {first['input']!r}."
    more = len(complaints) - 1
    return text + (f" ({more} more problem{'s' * (more > 1)})" if more else "")
