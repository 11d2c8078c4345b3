"""Secrets out of what users' programs wrote, before it is shown."""

from __future__ import annotations

import re

MASK = "***"
_NAME = r"[\w.-]*(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|credentials?)"
_NOT_A_NUMBER = r"(?![\d.]+(?:[\s,;)}]|$))"
_PATTERNS = (
    re.compile(rf"(?i)(?P<keep>(?:^|[\s\"'{{(,;?&-]){_NAME}[\"']?\s*[=:]\s*[\"']?){_NOT_A_NUMBER}(?P<secret>[^\s\"',;&}})]+)"),
    re.compile(r"(?P<keep>://[^/\s:@]+:)(?P<secret>[^/\s@]+)(?=@)"),
    re.compile(r"(?i)(?P<keep>\bbearer\s+)(?P<secret>[\w.~+/-]{8,}=*)"),
    re.compile(
        r"(?P<keep>)(?P<secret>\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}"
        r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*))"
    ),
)
_FLAG = re.compile(rf"(?i)^--?{_NAME}$")


def masked(text: str) -> str:
    """The text with known forms of secrets replaced."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: match["keep"] + MASK, text)
    return text


def masked_command(words: list[str]) -> list[str]:
    """A command line with the values of secret flags, and known forms of secrets, replaced."""
    shown, hide = [], False
    for word in words:
        shown.append(MASK if hide else masked(word))
        hide = bool(_FLAG.match(word)) and not hide
    return shown
