"""The frame around every screen: header, tabs, verdict, prompt, replay bar and footer, and the page between them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.dom import DOMNode
from textual.reactive import Reactive
from textual.widget import Widget

from distmon.core.errors import DistmonError, UsageError
from distmon.core.printable import clean
from distmon.tui.bindings import WHILE_HELPING, Command, bindings_for, commands_for
from distmon.tui.ports import Job, Player
from distmon.tui.rights import Rights
from distmon.tui.screens.arrange import MIN_HEIGHT, MIN_WIDTH, Box, frame_places, resized
from distmon.tui.screens.board import Board
from distmon.tui.screens.page import WINDOWS_S, Page
from distmon.tui.screens.registry import entry, make_page
from distmon.tui.view import chrome, header
from distmon.tui.view.facts import Facts
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import cells
from distmon.tui.widgets.paint import HoldingScreen
from distmon.tui.widgets.panel import Panel
from distmon.tui.widgets.prompt import FilterPrompt
from distmon.tui.widgets.replay_bar import ReplayBar
from distmon.tui.widgets.text_panel import TextBand, TextPanel

FIRST = "overview"
LAST = 10
"""Place in the footer after the commands of all screens, while there is nothing to steer."""
SHORT = 5
"""Answers to a question that fit into one line."""
ANSWER_WIDTH = 30
"""Cells for what is written in the prompt beside what it asks for; of a narrow screen, half. What is longer stands above it."""
QUESTION_WIDTH = 64


Answers = Mapping[str, tuple[str, Callable[[], None] | None]]
"""Key -> what it is called, and what it does."""


class Visit(NamedTuple):
    """A moment that a screen's row or line sent the user to; Escape on that screen goes back. Seconds since the start."""

    screen: str
    there: float
    before: float
    opened: set[str]
    """What was open on that screen: while more is open, Escape closes."""


STAYS = ("play_pause", "faster", "slower", "by_step", "mark", "go_to")
"""Commands of the bar that by themselves go nowhere: after them there is still a way back from a moment."""


class Cockpit(HoldingScreen):
    """Shows one page at a time; `show` is the one way in for the facts. Pages are made when first asked for, and kept."""

    BINDINGS = bindings_for("screen")
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Cockpit { overflow: hidden hidden; }
    Cockpit #header, Cockpit #tabs, Cockpit #verdict, Cockpit #footer, Cockpit #asked, Cockpit #bar { background: $surface; }
    """
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """Panels say themselves who has the keys: the framework would write the whole screen anew."""

    def __init__(
        self, facts: Facts, player: Player | None = None, job: Job | None = None, rights: Rights | None = None
    ) -> None:
        super().__init__()
        self.facts, self.player, self.job, self.rights = facts, player, job, rights or Rights()
        self.opening: tuple[str, object] | None = None
        """The screen to begin with, and its subject, until it is gone to; the landing screen without it."""
        self.cross: float | None = None
        self.note = ""
        self.helping = False
        self.prompting = False
        self._asked = ""
        """What the line in the prompt says, which is written before it."""
        self._line_wanted: Callable[[str], str | None] | None = None
        """What the line in the prompt is for; None for a filter."""
        self._if_dropped: Callable[[], None] | None = None
        """What is done when no line is given after all."""
        self.question = ""
        self._answers: Answers = {}
        self._also: dict[str, str] = {}
        self.bar = ReplayBar(player, self._ask_name, id="bar") if player is not None else None
        self.prompt = FilterPrompt(id="prompt")
        self.bands = {name: TextBand(id=name) for name in ("header", "tabs", "verdict", "footer", "too_small", "asked")}
        self.overlays = {name: TextPanel(name, 0, id=name) for name in ("help", "question")}
        self.pages: dict[str, Page] = {FIRST: make_page(FIRST, self)}
        self.page = self.pages[FIRST]
        self._had_keys: Widget | None = None
        """What had the keys before a question or the help."""
        self._visit: Visit | None = None
        """The moment that was gone to, until the user is back or goes elsewhere."""
        self._steered = player is not None and not player.live
        """Whether the bar has its row: not while there is nothing to steer."""
        self._before: list[str] = []
        """The screens that Escape goes back to, the last one last."""

    def compose(self) -> ComposeResult:
        with Board(self._places):
            yield from self._parts()

    def _parts(self) -> list[Widget]:
        bar = [self.bar] if self.bar is not None else []
        return [*self.bands.values(), *self.pages.values(), self.prompt, *bar, *self.overlays.values()]

    def on_mount(self) -> None:
        self.rearrange()
        if self.opening is not None:
            self.go(*self.opening)
            self.opening = None

    def on_resize(self, event: events.Resize) -> None:
        self.rearrange()

    # --- screens --------------------------------------------------------------------------------------------------

    def go(self, screen: str, subject: object = None) -> None:
        """To another screen; Escape there comes back to this one."""
        if screen != self.page.screen_name:
            self._before = [name for name in self._before if name != self.page.screen_name] + [self.page.screen_name]
        self._turn_to(screen, subject)

    def _turn_to(self, screen: str, subject: object = None) -> None:
        if self.app._exit:
            return  # a click that was on its way when the user left
        if screen not in self.pages:
            page = self.pages[screen] = make_page(screen, self)
            self.query_one(Board).mount(page, before=self.prompt)
            page.draw_parts(self.facts, set(page.panels))  # keys that come before it has its place find its rows
        # Or else the framework gives the focus of what is about to hide to some neighbour.
        self.set_focus(None)
        self.prompting = False
        self.page = self.pages[screen]
        self.page.arranged_size = None
        if subject is not None:
            self.page.open_subject(subject)
        self.rearrange()
        self.page.rearrange()
        self.page.take_focus()

    def _go_back(self) -> None:
        if self._before:
            self._turn_to(self._before.pop())
        elif self.page.screen_name != FIRST:
            self._turn_to(FIRST)

    @property
    def trail(self) -> list[str]:
        """Where the user is, from the landing screen."""
        title = [] if self.page.screen_name == FIRST else [entry(self.page.screen_name).title]
        return [*title, *self.page.trail()]

    @property
    def commands(self) -> list[Command]:
        """What can be done here. A form lies over the session: nothing that is typed there goes to another moment of it."""
        bar = ("bar",) if self.bar is not None and not self.page.TYPED else ()
        found = commands_for("app", "screen", self.page.screen_name, *bar)
        numbers = {f"panel({i})" for i in range(1, len(self.page.panels) + 1)}
        idle = self.page.idle_actions
        return [c for c in found if c.action not in idle and (not c.action.startswith("panel(") or c.action in numbers)]

    @property
    def _footer_commands(self) -> list[Command]:
        """Of the bar's only the one that calls it, until it has its row."""
        found = self.commands
        if self.page.TYPED:
            return [replace(c, keys=keys) for c in found if (keys := c.keys_while_typing)]
        if self._steered:
            return found
        return [replace(c, footer=LAST) if c.where == "bar" else c for c in found if c.where != "bar" or c.action == "play_pause"]

    # --- drawing --------------------------------------------------------------------------------------------------

    def show(self, facts: Facts) -> None:
        """Draw a new moment; parts that look the same write nothing."""
        self.facts = facts
        self.redraw()

    def keep_up(self) -> None:
        """Events were taken in, which are drawn later."""
        for page in self.pages.values():
            page.keep_up(self.facts)

    def redraw(self) -> None:
        self.page.redraw()
        self.page_changed()

    def rearrange(self) -> None:
        """Give every part its place, hide those without one, and draw them."""
        places = self._places(self.size.width, self.size.height)
        self.set_class(self.helping or bool(self.question), "-covered")
        for part in self._parts():
            part.display = part.id in places
            if isinstance(part, Panel):
                part.boxed = True
        # A child, because the framework forgets the arrangement of a widget's ancestors, not its own.
        self.bands["header"].refresh(layout=True)
        self.holds = True
        self.page_changed()

    @property
    def is_whole(self) -> bool:
        """One layout gives a page another size, and only the next its parts their places."""
        return self.page.is_arranged or not self.page.display

    def _places(self, width: int, height: int) -> dict[str, Box]:
        asked = cells(self._asked) + 2
        beside = asked <= max(width - ANSWER_WIDTH, width // 2)
        above = 0 if beside else min(len(textwrap.wrap(self._asked, max(width - 2, 1))), height // 4)
        places = frame_places(width, height, bar=self._steered, prompt=1 + above if self.prompting else 0)
        if "prompt" in places:
            prompt = places["prompt"]
            places["asked"] = resized(prompt, width=asked) if beside else resized(prompt, height=above)
            indent = asked if beside else 0
            places["prompt"] = Box(prompt.x + indent, prompt.y + above, prompt.width - indent, 1)
        if "page" in places:
            places[str(self.page.id)] = places.pop("page")
            if self.helping:
                places["help"] = _centred(width, height, 100, 60)
            if self.question:
                wide = min(QUESTION_WIDTH, width - 4)
                lines = len(chrome.question_parts(self.question, wide - 2))
                places["question"] = _centred(width, height, wide, 5 + lines + (len(self._answers) > SHORT))
        return places

    def page_changed(self) -> None:
        """Draw what is around the page."""
        if self.player is not None and self._steered is self.player.live:
            self._steered = not self._steered
            self._visit = self._visit if self._steered else None
            self.note = "End goes back to live" if self._steered else "live"
            self.rearrange()
            self.page.rearrange()
            return
        facts, needed, trail = self.facts, (MIN_WIDTH, MIN_HEIGHT), self.trail
        standing = self.bar.standing if self.bar is not None else ""
        # Each key says something, or takes back what the last one said: only what depends on it is written again.
        self.bands["header"].show(partial(header.header, facts, trail, standing), (facts, trail, standing))
        screen, asked = self.page.screen_name, self._asked
        self.bands["tabs"].show(lambda palette, width, height: chrome.tabs(screen, palette, width), screen)
        self.bands["verdict"].show(lambda palette, width, height: header.verdict(facts, palette, width, height), facts)
        footer = (self._footer_commands, len(self.page.panels), self.note)
        self.bands["footer"].show(lambda palette, width, height: chrome.footer(*footer, palette, width), footer)
        self.bands["asked"].show(
            lambda palette, width, height: wrapped(asked, width - 2, palette.style("muted"), indent=" "), asked
        )
        self.bands["too_small"].show(
            lambda palette, width, height: chrome.too_small_lines(palette, width, height, needed), needed
        )
        if self.helping:
            write = partial(chrome.help_lines, self.commands, self.page.fields)
            self.overlays["help"].show(write, [("? or Esc closes", "muted")])
        if self.question:
            answers = [(key, words) for key, (words, _) in self._answers.items()]
            self.overlays["question"].show(partial(chrome.question_lines, self.question, answers))
        if self.bar is not None:
            self.bar.redraw()

    # --- questions, notes and keys --------------------------------------------------------------------------------

    def allows(self, action: str) -> bool:
        """While a question or the help is open, keys do not act on what lies under it."""
        if self.question:
            return action == "back"
        return action in WHILE_HELPING if self.helping else True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.allows(action)

    def say(self, note: str) -> None:
        self.note = note
        self.page_changed()

    def ask(self, question: str, if_yes: Callable[[], None]) -> None:
        """Put a yes/no question over the screen."""
        self.choose(question, {"y": ("yes", if_yes), "n": ("no", None)}, {"q": "n"})

    def choose(self, question: str, answers: Answers, also: Mapping[str, str] | None = None) -> None:
        """Put a question with an answer per key over the screen; Escape and Ctrl-C close it. `also`: other keys for the same."""
        self.question, self._answers, self._also = question, answers, {"ctrl+c": "escape", **(also or {})}
        self._take_keys()
        self.rearrange()

    def _take_keys(self) -> None:
        """What lies under a question or the help must not write the keys down that are meant for it."""
        if self.focused is not None:
            self._had_keys = self.focused
            self.set_focus(None)

    def _give_keys_back(self) -> None:
        if self._had_keys is not None and not self.question and not self.helping:
            had, self._had_keys = self._had_keys, None
            if self.focused is None and had.is_mounted and had.display:
                self.set_focus(had)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click, or a page that has got its place."""
        if self.question or self.helping:
            self._take_keys()

    @property
    def form_opens(self) -> bool:
        """Whether what is typed is for a form that has not the keys yet."""
        if self.opening is not None:
            return True
        page = self.page
        return page.TYPED and page.wants_focus and page.display and not self.question and not self.helping

    def on_key(self, event: events.Key) -> None:
        if self.note:
            self.say("")
        if self.question:
            event.stop()
            key = self._also.get(event.key, event.key)
            if key == "escape" or key in self._answers:
                self._answer(key)

    async def early(self, key: str) -> bool:
        """Does what a key means to a page that has not its place yet, and so not the keys; False where it means nothing there."""
        if not self.page.wants_focus or self.question or self.helping:
            return False
        command = next((c for c in commands_for(self.page.screen_name) if key in c.keys), None)
        if command is not None:
            await self.do(command)
        return command is not None

    def _answer(self, key: str) -> None:
        answers, self.question, self._answers = self._answers, "", {}
        self.rearrange()
        self._give_keys_back()
        _, act = answers.get(key, ("", None))
        if act is not None:
            act()

    async def on_text_band_clicked(self, event: TextBand.Clicked) -> None:
        """A click on the verdict tells why, one on a tab goes there, one on a command of the footer does it."""
        if event.band.id == "verdict":
            await self.run_action("verdicts")
        elif event.band.id == "tabs":
            screen = chrome.tab_at(self.page.screen_name, self.size.width, event.x)
            if screen is not None and self.allows("go"):
                self.go(screen)
        elif event.band.id == "footer":
            command = chrome.command_at(self._footer_commands, len(self.page.panels), self.note, self.size.width, event.x)
            if command is not None:
                await self.do(command)

    async def do(self, command: Command) -> None:
        """Run a command as its key would."""
        places: dict[str, DOMNode | None] = {"app": self.app, "screen": self, "bar": self.bar}
        place = places.get(command.where, self.page)
        if place is not None:
            try:
                await self.app.run_action(command.action, place)
            except DistmonError as error:
                self.say(str(error))
        if command.where == "bar":
            if command.action not in STAYS:
                self._visit = None
            self.page_changed()

    # --- actions --------------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """Close the topmost thing that is open, or go back from a moment; then go back to the screen before."""
        visit = self._visit if self._visit is not None and self._visit.screen == self.page.screen_name else None
        if self.question:
            self._answer("escape")
        elif self.prompting:
            self.prompt.action_drop()  # it has lost the keys to a click, or to a size that it had no place in
        elif self.helping:
            self.toggle_help()
        elif visit is not None and self.page.opened <= visit.opened:
            self._end_visit(visit)
        elif self.page.close_topmost():
            self.page.rearrange()
            self.page_changed()
        elif visit is not None:
            self._end_visit(visit)
        else:
            self._go_back()

    def toggle_help(self) -> None:
        self.helping = not self.helping
        if self.helping:
            self._take_keys()
        self.rearrange()
        self._give_keys_back()

    def action_search(self) -> None:
        target = self.page.filter_target
        if not target:
            self.say("there is nothing to filter here")
            return
        self._line_wanted = None
        self._open_prompt(f"filter {target}:", self.page.choices.filters.get(target, ""))

    def read_line(
        self, what: str, text: str, then: Callable[[str], str | None], if_dropped: Callable[[], None] | None = None
    ) -> None:
        """Let the user write a line, which begins as `text`; `then` gets it unless it was dropped, and says what is wrong."""
        self._line_wanted, self._if_dropped = then, if_dropped
        self._open_prompt(what, text)

    def _open_prompt(self, what: str, text: str) -> None:
        self.prompting, self._asked = True, clean(what)
        self.page.leave_focus()
        self.rearrange()
        with self.prompt.prevent(FilterPrompt.Changed):
            self.prompt.value = text
            self.prompt.cursor_position = len(text)
        self.set_focus(self.prompt)

    def on_filter_prompt_typed(self, event: FilterPrompt.Typed) -> None:
        if self._line_wanted is None:
            self.page.set_filter(event.text.strip())
        elif event.done and not event.dropped and (wrong := self._line_wanted(event.text.strip())):
            self._open_prompt(wrong, event.text)
            return
        if event.done:
            self.prompting = False
            self.rearrange()
            self.page.focus_panel(self.page.choices.focused)
            dropped, self._if_dropped = self._if_dropped, None
            if event.dropped and self._line_wanted is not None and dropped is not None:
                dropped()

    def action_problems(self) -> None:
        """Only rows that need a look, or all again."""
        self.page.toggle_problems()

    def action_next_sort(self) -> None:
        self.page.change_sort(self.page.choices.next_sort)

    def action_reverse_sort(self) -> None:
        self.page.change_sort(self.page.choices.reverse_sort)

    def action_panel(self, number: int) -> None:
        names = list(self.page.panels)
        if number > len(names):
            return
        name = names[number - 1]
        if self.page.choices.focused == name and self.focused is self.page.panels[name]:
            self.action_zoom()
        else:
            self.page.focus_panel(name)

    def action_next_panel(self) -> None:
        self.page.step_focus(1)

    def action_previous_panel(self) -> None:
        self.page.step_focus(-1)

    def action_zoom(self) -> None:
        choices = self.page.choices
        choices.zoomed = None if choices.zoomed is not None else choices.focused
        self.page.rearrange()

    def action_details(self) -> None:
        self.page.when_there(self.page.open_details)
        self.page_changed()

    def action_verdicts(self) -> None:
        self.page.open_verdicts()
        self.page_changed()

    def action_window(self) -> None:
        if self._has_charts():
            self.page.next_window()

    def action_pan(self, quarters: int) -> None:
        if self._has_charts():
            self.page.pan(quarters * (WINDOWS_S[self.page.choices.window] or 0.0) / 4)

    def action_log_axis(self) -> None:
        if self._has_charts():
            self.page.toggle_log()

    def action_crosshair(self) -> None:
        if self._has_charts():
            self.point_at(self.facts.state.now if self.cross is None else None)

    def _has_charts(self) -> bool:
        if not self.page.TIMED:
            self.say("there is no chart on this screen")
        return bool(self.page.TIMED)

    def visit(self, at: float) -> None:
        """A recording goes to the moment, and back when asked again; otherwise the crosshair shows it on every chart."""
        if self.player is None or self.facts.state.started is None:
            self.point_at(at)
            self.say("the crosshair is at that moment on every chart")
            return
        there, visit = max(at - self.facts.state.started, 0.0), self._visit
        if visit is not None and visit.there == there:
            self._end_visit(visit)
            return
        try:
            self.go_elsewhere(partial(self.player.seek, there), there)
        except DistmonError as error:
            self.say(str(error))

    def go_elsewhere(self, go: Callable[[], None], there: float | None = None) -> None:
        """To another moment by `go`, which may raise; Escape on this screen goes back to where one was."""
        if self.player is None:
            return
        here, screen = math.inf if self.player.live else self.player.position_s, self.page.screen_name
        if self._visit is not None and self._visit.screen == screen:
            here = self._visit.before
        go()
        self._visit = Visit(screen, self.player.position_s if there is None else there, here, self.page.opened)
        self.say("at that moment; Esc goes back")

    def _end_visit(self, visit: Visit) -> None:
        self._visit = None
        if self._seek(visit.before):
            self.say("back where you were")

    def _seek(self, position_s: float) -> bool:
        """Whether it could go there; else it says why not."""
        try:
            if self.player is not None:
                self.player.seek(position_s)
        except DistmonError as error:
            self.say(str(error))
            return False
        return True

    def on_replay_bar_place_asked(self) -> None:
        self.read_line("go to (1:30, step:1234, mark:NAME, end):", "", self._go_to)

    def _go_to(self, text: str) -> str | None:
        try:
            if self.bar is not None and text:
                self.go_elsewhere(partial(self.bar.go_to, text))
        except DistmonError as error:
            return str(error)
        return None

    def on_replay_bar_said(self, event: ReplayBar.Said) -> None:
        self.say(event.text)

    def _ask_name(self, position_s: float, name: str) -> None:
        if self.rights.refusal:
            self.say(self.rights.refusal)
            return
        if self.player is None:
            return
        live, played = self.player.live, self.player.playing
        self.player.pause()
        what = "a name for this moment; empty takes the mark away" if name else "a name for this moment"
        self.read_line(what, name, partial(self._name_moment, position_s), partial(self._go_on, live, played))

    def _go_on(self, live: bool, played: bool) -> None:
        """As before the question for a name."""
        if live:
            self._seek(math.inf)
        elif played and self.player is not None:
            self.player.play()
        self.page_changed()

    def _name_moment(self, position_s: float, name: str) -> str | None:
        if self.bar is None:
            return None
        try:
            self.bar.name_moment(position_s, name)
        except UsageError as error:
            return str(error)
        except DistmonError as error:
            self.say(str(error))
        else:
            self.say("marked; n and N go from mark to mark" if name else "no mark here")
        return None

    def point_at(self, at: float | None) -> None:
        """The crosshair is the same on every chart."""
        if at != self.cross:
            self.cross = at
            if self.page.TIMED:
                self.page.redraw(*self.page.TIMED)

    def action_navigate(self, where: str) -> None:
        if self.helping:
            self.overlays["help"].navigate(where)
        else:
            self.page.when_there(partial(self.page.navigate, where))


def _centred(width: int, height: int, wide: int, high: int) -> Box:
    """A box of at most this size in the middle, two cells from the edges where there is room."""
    wide, high = min(wide, max(width - 4, 1)), min(high, max(height - 2, 1))
    return Box((width - wide) // 2, (height - high) // 2, wide, high)
