"""The schemas of a user's own data files.

Multiple choice: `{"prompt": str, "choices": [str, ...], "gold": int}`, optionally with `"id"` and
`"delimiter"`. Text: `{"text": str}`. What is scored is the delimiter, by default one space as in
the known tasks, and the choice; no delimiter is put where white space or nothing stands already.

Prompts: `{"prompt": str, "answer": str | number | [str | number, ...]}`, optionally with `"id"`;
`"answers"` may be written for `"answer"`. Any of the answers is right. Where the continuation is
not judged, the answer may be left out.
"""

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem, PromptItem
from shoal.data.rows import Row, all_spelled, integer, text, texts


def build_own(row: Row, index: int) -> ChoiceItem:
    """Build a multiple-choice item from a row of a user's own file."""
    prompt = text(row, "prompt")
    delimiter = text(row, "delimiter") if "delimiter" in row else " "
    choices = tuple(Choice(prompt, _joined(prompt, delimiter, c)) for c in texts(row, "choices"))
    return ChoiceItem(str(row.get("id", index)), choices, integer(row, "gold"))


def build_own_prompt(row: Row, index: int) -> PromptItem:
    """Build a prompt from a row of a user's own file."""
    prompt = text(row, "prompt")
    if "choices" in row:
        raise UsageError('the row has "choices": it is multiple choice, not a prompt to continue.')
    keys = [key for key in ("answer", "answers") if key in row]
    if len(keys) == 2:
        raise UsageError('the row has both "answer" and "answers". Put all in one list.')
    answers = all_spelled(row, keys[0]) if keys else ()
    return PromptItem(str(row.get("id", index)), prompt, answers)


def kind_of_row(row: Row) -> str | None:
    """The kind of data that a row of a user's own file holds, or None where it is none."""
    if "choices" in row:
        return "choice"
    if "text" in row:
        return "text"
    # A gold answer is an index of choices, whose key must then be misspelt.
    return "prompt" if "prompt" in row and "gold" not in row else None


def _joined(prompt: str, delimiter: str, choice: str) -> str:
    touches = not prompt or prompt[-1].isspace() or choice[:1].isspace()
    return choice if touches else delimiter + choice
