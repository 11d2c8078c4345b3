"""Keys one at a time: what a key opens has the next one, also where several come at once, as in a paste or over a slow link.

The framework gives a key to what has the focus when it comes. Its command is run after it has gone up from there to the app, and
the keys behind it have been given out by then.
"""

from __future__ import annotations

from collections import deque

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key
from textual.message_pump import MessagePump


class OrderedKeys(App[int]):
    """An app in which a key is given out once the one before it has done all that it does."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._keys_ahead = deque[Key]()
        self._key_under_way = False

    @property
    def keys_wait(self) -> bool:
        """Whether what is to have the keys is still being made; once it is there, `give_out_keys` goes on."""
        return False

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key) or event.is_forwarded:
            await super().on_event(event)
        else:
            self._keys_ahead.append(event)
            await self.give_out_keys()

    async def give_out_keys(self) -> None:
        """The next key, if it is its turn."""
        if self._keys_ahead and not self._key_under_way and not self.keys_wait:
            self._key_under_way = True
            receiver = self.focused or self.screen
            await super().on_event(self._keys_ahead.popleft())
            self._go_behind(receiver)

    def _go_behind(self, node: DOMNode | MessagePump) -> None:
        """Goes up behind the key, from queue to queue, as it goes itself unless it is stopped."""
        if node is self:
            self.call_later(self._next_key)
        elif not node.call_later(self._go_behind, node._parent or self):
            self._go_behind(node._parent or self)  # it has been taken away meanwhile

    async def _next_key(self) -> None:
        self._key_under_way = False
        await self.give_out_keys()
