"""The schemas of a user's own data files.

Multiple choice: `{"prompt": str, "choices": [str, ...], "gold": int}`, optionally with `"id"` and
`"delimiter"`. Text: `{"text": str}`. What is scored is the delimiter, by default one space as in
the known tasks, and the choice; no delimiter is put where white space or nothing stands already.
"""

from shoal.data.items import Choice, ChoiceItem
from shoal.data.rows import Row, integer, text, texts


def build_own(row: Row, index: int) -> ChoiceItem:
    """Build an item from a row of a user's own file."""
    prompt = text(row, "prompt")
    delimiter = text(row, "delimiter") if "delimiter" in row else " "
    choices = tuple(Choice(prompt, _joined(prompt, delimiter, c)) for c in texts(row, "choices"))
    return ChoiceItem(str(row.get("id", index)), choices, integer(row, "gold"))


def _joined(prompt: str, delimiter: str, choice: str) -> str:
    touches = not prompt or prompt[-1].isspace() or choice[:1].isspace()
    return choice if touches else delimiter + choice
