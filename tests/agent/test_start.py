"""What an agent's start does not load: each module here was a few milliseconds of every start, and memory for ever after."""

from __future__ import annotations

import subprocess
import sys

AGENT = "from distmon.agent.journal import Journal; from distmon.agent.loop import Agent; from distmon.agent.main import main"
NEEDLESS = ("inspect", "ast", "dis", "dataclasses", "typing_extensions", "subprocess", "tempfile", "shutil", "distmon.core.steps")


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_an_agents_start_loads_only_what_every_agent_needs() -> None:
    # An editable installation loads some by itself, before any code of ours.
    loaded = "sys.modules.keys() - before"
    assert _run(f"import sys; before = set(sys.modules); {AGENT}; print(*sorted(set({NEEDLESS!r}) & ({loaded})))") == ""


def test_no_decoder_of_every_kind_is_made_before_something_is_decoded() -> None:
    code = "from distmon.core import codec; from distmon.core.events import Ticked as T"
    size = "codec._json_decoder.cache_info().currsize"
    assert _run(f"{code}; print({size}, codec.decode_json(codec.encode_json(T(at=1.0))).at)") == "0 1.0"


def test_what_was_left_out_can_be_imported_later() -> None:
    assert _run(f"{AGENT}; import typing_extensions, sys; print(typing_extensions.__name__)") == "typing_extensions"


def test_types_are_understood_the_same_without_typing_extensions() -> None:
    """What msgspec takes from it: hints with their limits, and which keys of a TypedDict are there."""
    code = (
        "import msgspec; from typing import Annotated, NotRequired, TypedDict\n"
        "class Some(TypedDict):\n    a: Annotated[int, msgspec.Meta(le=3)]\n    b: NotRequired[str]\n"
        "print(msgspec.convert({'a': 2}, Some))\n"
        "try: msgspec.convert({'a': 4}, Some)\nexcept msgspec.ValidationError as error: print(error)"
    )
    assert _run(f"import distmon.agent\n{code}") == _run(code)


def test_nvmls_binding_loads_no_subprocess_and_what_it_was_spared_still_works() -> None:
    code = (
        "import sys; from distmon.agent.sensors import nvidia_library\n"
        "binding = nvidia_library._import_binding(); print('subprocess' in sys.modules, 'ctypes.util' in sys.modules)\n"
        "print(binding.find_library('no-such-library'), 'ctypes.util' in sys.modules)\n"
        "print(nvidia_library._import_binding() is binding)"
    )
    assert _run(code).split() == ["False", "False", "None", "True", "True"]
