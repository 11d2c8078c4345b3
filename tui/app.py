"""The Textual app: drains the source into the state on a timer and shows the state; owns no number of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.console import RenderableType
from textual._compositor import LayoutUpdate
from textual.app import SystemCommand
from textual.events import Event, InputEvent, Key
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.strip import Strip

from distmon.core.errors import DistmonError
from distmon.core.fold import apply
from distmon.core.state import SessionState
from distmon.core.verdicts import Verdict, verdicts
from distmon.tui.alerts import FRESH_S, Alert, Alerts, desktop_note, run_command
from distmon.tui.bindings import bindings_for, commands_for
from distmon.tui.budget import LONGEST_PAUSE_S, SHARE, Budget
from distmon.tui.glyphs import AsciiFilter, ascii_only
from distmon.tui.ordered_keys import OrderedKeys
from distmon.tui.ports import Job, Player, Source
from distmon.tui.rights import rights_of
from distmon.tui.screens.acting import Acting
from distmon.tui.screens.cockpit import Cockpit
from distmon.tui.terminal import hung_up, is_monochrome, on_continue, on_hangup
from distmon.tui.theme import ANSI, DARK, PALETTES, palette_named, textual_theme
from distmon.tui.view.facts import Facts, facts
from distmon.tui.view_out import as_csv, as_html, as_json, as_text, as_tsv, save
from distmon.tui.widgets.paint import WholeFrame

if TYPE_CHECKING:
    from distmon.launcher.settings import AlertSettings
    from distmon.tui.screens.launch import Launch
    from distmon.tui.screens.sessions import Sessions

FRAME_S = 0.25
"""Events are taken in and drawn this often; keys are answered at once."""
SLOW_FRAME_S = 2.0
"""With --slow-link there is at least so long between two frames of data."""
TAKE_S, PAUSE_S = 0.01, 0.004
"""Events are taken in for at most so long, and after such a pause when more wait: a burst must not hold up a key."""
DRAW_SHARE = 0.007
"""Drawing may take this share of a core: after a frame of a large job the next one waits, but no longer than LATEST_S."""
LATEST_S = 1.0
"""While events of a burst wait, the screen waits for them, but not longer than this."""


class DistmonApp(OrderedKeys):
    """Shows one session, live or recorded; `player` is there where it can be moved in, `job` for a job started here."""

    TITLE = "distmon"
    BINDINGS = bindings_for("app")
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    CommandPalette > Vertical { margin-top: 2; max-width: 90; }
    /* above the prompt, the replay bar and the footer */
    ToastRack { margin-bottom: 3; }
    Cockpit.-covered Toast, CommandPalette Toast { visibility: hidden; }
    """

    def __init__(
        self,
        source: Source,
        player: Player | None = None,
        job: Job | None = None,
        *,
        state: SessionState | None = None,
        environment: Mapping[str, str] | None = None,
        opening: tuple[str, object] | None = None,
        follow: Callable[[], Path | None] | None = None,
    ) -> None:
        """`opening` is the screen to begin with, and its subject; `follow` says in which recording the shown one goes on."""
        environment = os.environ if environment is None else environment
        colourless = no_colours(environment)
        plain_colours = colourless or few_colours(environment)
        super().__init__(ansi_color=True if plain_colours else None)
        if colourless and not self.no_color:
            self.no_color = True
            self._filters.append(NoColor())
        self.source, self.player, self.job = source, player, job
        self.rights = rights_of(environment)
        self.state = state if state is not None else SessionState()
        self._budget = Budget()
        self._behind = False
        """Whether the source had more events than were taken in."""
        self._drawn_at = 0.0
        self._rests_until = 0.0
        """No frame of data is drawn before; keys and seeks do not wait for it."""
        self._alert_settings: AlertSettings | None = None
        self._alerts: Alerts | None = None
        self._last_alert: Alert | None = None
        self._unseen_due = 0.0
        """While another moment is shown, what happens now is not looked at before."""
        self._spacing_s = SLOW_FRAME_S if environment.get("DISTMON_SLOW_LINK", "") not in ("", "0") else 0.0
        if self._spacing_s and self.console._color_system is ColorSystem.TRUECOLOR:
            self.console._color_system = ColorSystem.EIGHT_BIT  # each colour takes half the bytes
        self._cut_off = False
        """Whether the recording ended without its session's end when it was drawn last."""
        self._more_due = False
        self._unread: str | None = None
        """What was not read of the recording when the bar was drawn last, or before."""
        self.wanted: Path | None = None
        """The recording that the user has left this session for."""
        self.wanted_beside: Path | None = None
        """The recording that is to stand beside that one."""
        self.wanted_run: list[str] | None = None
        """The words of the `distmon run` that the user has left it for."""
        self._opening, self._follow = opening, follow
        self._measuring = False
        """Whether a thread looks at the state, which must then stay as it is."""
        self._own_filters = [AsciiFilter()] if ascii_only(environment) else []
        for palette in PALETTES.values():
            self.register_theme(textual_theme(palette))
        wanted = environment.get("DISTMON_THEME", "")
        self.theme = (
            ANSI.name if plain_colours else f"distmon-{wanted}" if f"distmon-{wanted}" in PALETTES else DARK.name
        )
        self.animation_level = "none"
        if player is not None:
            for command in commands_for("bar"):
                self.bind(",".join(command.keys), f"play({command.action!r})", description=command.label, show=False)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._own_filters]

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, WholeFrame(renderable.strips) if isinstance(renderable, LayoutUpdate) else renderable)

    def get_default_screen(self) -> Screen[None]:
        self.take_events()
        self.cockpit = Cockpit(facts(self.state), self.player, self.job, self.rights)
        self.cockpit.opening = self._opening
        self.acting = Acting(self.cockpit, self.job, self.rights)
        return self.cockpit

    def on_mount(self) -> None:
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                loop.add_signal_handler(number, self.end_by_signal, number)
            on_hangup(lambda: loop.call_soon_threadsafe(self.end_by_signal, signal.SIGHUP))
            on_continue(self._driver)
        # The framework draws after a suspend only where the size is another than before, and the terminal comes back empty.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh())
        self.set_interval(FRAME_S, self.frame)
        self.call_after_refresh(freeze_garbage)
        self.call_after_refresh(self._read_settings)

    async def on_key(self, event: Key) -> None:
        if await self.cockpit.early(event.key):
            event.prevent_default()

    @property
    def keys_wait(self) -> bool:
        cockpit: Cockpit | None = getattr(self, "cockpit", None)
        return cockpit is not None and self.screen is cockpit and cockpit.form_opens

    async def on_descendant_focus(self) -> None:
        await self.give_out_keys()

    async def on_event(self, event: Event) -> None:
        """What is typed or clicked while the app ends is for nobody: there may be no screen left that takes it."""
        if not (isinstance(event, InputEvent) and (self._exit or not self._screen_stack)):
            await super().on_event(event)

    # --- data -----------------------------------------------------------------------------------------------------

    def take_events(self) -> None:
        """Fold what the source has, for at most TAKE_S; the rest waits for a moment in which keys are answered."""
        if self._measuring:
            return
        if self.player is not None and (sought := self.player.take_state()) is not None:
            self.state, self._budget, self._rests_until = sought, Budget(), 0.0
        deadline = time.perf_counter() + TAKE_S
        self._behind = True
        for count, event in enumerate(self.source.poll(), 1):
            apply(self.state, event)
            if count % 16 == 0 and time.perf_counter() > deadline:
                self._take_more_soon()
                return
        self._behind = False

    def _take_more_soon(self) -> None:
        if not self._more_due:
            self._more_due = True
            # Not a timer of the framework, which is a task and an event each time: this happens fifty times a second.
            asyncio.get_running_loop().call_later(PAUSE_S, self._take_more)

    def _take_more(self) -> None:
        self._more_due = False
        if self._exit:
            return
        try:
            self.take_events()
            self.cockpit.keep_up()
        except Exception as error:
            self._handle_exception(error)

    def frame(self) -> None:
        """One data frame: take events in, draw if there were any."""
        if self._exit:
            return
        if not self.is_headless and hung_up():
            os.kill(os.getpid(), signal.SIGHUP)
            return
        self.call_later(self.give_out_keys)  # a form that was opened may have got no place, or be left by now
        self.take_events()
        self.cockpit.keep_up()
        if self.job is not None and self.job.restarting and not self.job.running:
            self.exit(0)
            return
        if self._follow is not None and (path := self._follow()) is not None:
            self.wanted = path
            self.exit(0)
            return
        self._draw_if_due()
        self._look_at_unseen()

    def _draw_if_due(self) -> None:
        now = time.monotonic()
        if self._measuring or now < self._rests_until or (self._behind and now - self._drawn_at < LATEST_S):
            return
        if self.player is not None and self.player.cut_off is not self._cut_off:
            self._cut_off, self._budget = self.player.cut_off, Budget()
        fresh = self._budget.due(self.state.events)
        if fresh is None:
            if self._bar_goes_on():
                self.cockpit.page_changed()
            return
        if fresh and self._budget.heavy:
            self._measuring = True
            self.run_worker(self._measure(fresh), name="measures")
        else:
            self._draw(fresh)

    def _bar_goes_on(self) -> bool:
        """Whether there is more on the bar though nothing happened: of what goes on unseen, or of what was read by and by."""
        if self.player is None:
            return False
        unread, self._unread = self._unread, self.player.unread
        return self.player.behind_s is not None or unread != self._unread

    def _draw(self, fresh: tuple[str, ...], measured: Facts | None = None) -> None:
        self._drawn_at = time.monotonic()
        if measured is None:
            measured, spent = _timed_facts(self.state, self.cockpit.facts, fresh, self._cut_off)
            self._budget.spent(fresh, spent)
        self._show(measured)
        if self._unseen is None:
            self._tell_new(self.state, measured.verdicts)

    def _show(self, measured: Facts) -> None:
        """Draw, and say how long the next frame of data waits for it."""
        begun = time.thread_time()
        self._unread = self.player.unread if self.player is not None else ""
        if measured.state.job.status == "ended" and self.cockpit.note == self.acting.said:
            self.cockpit.note = ""  # what the job was about to do
        self.cockpit.show(measured)
        rest_s = min((time.thread_time() - begun) / DRAW_SHARE, LATEST_S)
        self._rests_until = self._drawn_at + max(rest_s, self._spacing_s) - FRAME_S / 2  # to the nearest frame

    async def _measure(self, fresh: tuple[str, ...]) -> None:
        """In a thread of its own: what walks over very many ranks. No event is taken in meanwhile, and keys are answered."""
        measured, spent = await asyncio.to_thread(_timed_facts, self.state, self.cockpit.facts, fresh, self._cut_off)
        self._measuring = False
        self._budget.spent(fresh, spent)
        self._draw((), measured)

    @property
    def _unseen(self) -> SessionState | None:
        """What happens now, while the screens show another moment of a session that goes on."""
        present = self.player.present if self.player is not None else None
        return None if present is self.state else present

    def _look_at_unseen(self) -> None:
        """What happens now calls also while nobody sees it."""
        unseen = self._unseen
        if unseen is not None and not self._measuring and time.monotonic() >= self._unseen_due:
            self._measuring = True
            self.run_worker(self._measure_unseen(unseen), name="unseen")

    async def _measure_unseen(self, unseen: SessionState) -> None:
        """In a thread, as in `_measure`."""
        found, spent = await asyncio.to_thread(_timed_verdicts, unseen)
        self._measuring = False
        self._unseen_due = time.monotonic() + min(spent / SHARE, LONGEST_PAUSE_S)
        self._tell_new(unseen, found)

    def _tell_new(self, state: SessionState, found: Sequence[Verdict]) -> None:
        """Of what happens now, or of a recording as it plays."""
        for alert in self._alerts.update(state, found) if self._alerts is not None else ():
            self._call(alert)

    # --- leaving --------------------------------------------------------------------------------------------------

    def end_by_signal(self, number: int) -> None:
        """A signal, or a terminal that is gone, ends the app as a shell expects; a job started here is stopped."""
        if self._exit:
            return
        self._stop_job()
        self.exit(return_code=128 + number)

    def action_leave(self) -> None:
        if self.job is not None and self.job.running and self.rights.read_only:
            self.cockpit.say("read-only: leaving would end the job; from a shell: distmon stop")
        elif self.job is not None and self.job.running:
            question = "The job that was started here is still running.\nStop it and leave?"
            answers = {"y": ("yes (^C)", self._stop_and_leave), "n": ("no", None)}
            # Who presses Ctrl-C again wants it ended, not kept.
            self.cockpit.choose(question, answers, {"ctrl+c": "y", "q": "n"})
        else:
            self.exit(0)

    def _stop_and_leave(self) -> None:
        self._stop_job()
        self.exit(0)

    def _stop_job(self) -> None:
        if self.job is not None and self.job.running:
            self.job.stop()

    def _fatal_error(self) -> None:
        """Instead of the framework's traceback: leave, and let `run_app` say it once the terminal is given back."""
        self._close_messages_no_wait()

    # --- commands -------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question or the help is open, keys do not act on what lies under it."""
        if self._exit:
            return False  # what is made now would find only half of the screen there
        cockpit: Cockpit | None = getattr(self, "cockpit", None)
        if cockpit is None or action == "back":
            return True
        return cockpit.allows(action) and not cockpit.question

    def action_act(self, kind: str) -> None:
        self.acting.begin(kind)

    def action_go(self, screen: str) -> None:
        if refusal := self.rights.screen_refused(screen):
            self.cockpit.say(refusal)
        else:
            self.cockpit.go(screen)

    def on_sessions_open_asked(self, event: Sessions.OpenAsked) -> None:
        """Leaves, so that the recording can be shown in this one's place."""
        if self.job is not None and self.job.running:
            self.cockpit.say(f"a job was started here; in another terminal: distmon replay {event.path.name}")
            return
        self.wanted, self.wanted_beside = event.path, event.beside
        self.exit(0)

    def on_launch_start_asked(self, event: Launch.StartAsked) -> None:
        self.wanted_run = event.words
        self.exit(0)

    def action_help(self) -> None:
        self.cockpit.toggle_help()

    # --- out of the screen ----------------------------------------------------------------------------------------

    def action_export(self) -> None:
        """Ask for a kind of file, and save the view in the current folder."""
        if self.rights.served:
            self.cockpit.say("from a browser no file is written; y copies")
            return
        if self.rights.refusal:
            self.cockpit.say("read-only: no file is written; y copies")
            return
        words = {"s": "svg", "h": "html", "t": "text", "c": "csv", "j": "json"}
        save = self._save_without_question
        answers = {key: (kind.upper() if kind != "text" else "text", partial(save, kind)) for key, kind in words.items()}
        self.cockpit.choose("Save this screen as SVG, HTML or text,\nor the focused panel's data as CSV or JSON", answers)

    def _save_without_question(self, kind: str) -> None:
        """The question leaves the screen only when it is laid out anew."""
        self.call_after_refresh(self._save, kind)

    def _save(self, kind: str) -> None:
        page, panel = self.cockpit.page, self.cockpit.page.focused_panel
        writers: dict[str, Callable[[], str]] = {
            "svg": lambda: self.export_screenshot(title="distmon"),
            "html": lambda: as_html(self._screen_lines(), palette_named(self.theme), "distmon"),
            "text": lambda: as_text(self._screen_lines()),
            "csv": lambda: as_csv(panel.records(), panel.file_names()) if panel is not None else "",
            "json": lambda: as_json(panel.records() if panel is not None else []),
        }
        try:
            self.cockpit.say(f"saved as {save(kind, f'distmon-{page.screen_name}', writers[kind], Path.cwd()).name}")
        except DistmonError as error:
            self.cockpit.say(str(error))

    def _screen_lines(self) -> list[Strip]:
        width, height = self.size
        return [Strip(line, width) for line in self.screen._compositor.render_strips()][:height]

    def action_copy(self) -> None:
        """The selected row, or all of the focused panel, to the clipboard of the terminal (OSC 52)."""
        panel = self.cockpit.page.focused_panel
        records = panel.selected_records() if panel is not None else []
        self.copy_to_clipboard(as_tsv(records))
        self.cockpit.say(f"copied {len(records):,} line" + "s" * (len(records) != 1))

    def action_alert(self) -> None:
        """To the screen and the moment of the last alert."""
        if self._last_alert is None:
            self.cockpit.say("nothing has called for you yet")
            return
        self.cockpit.go(self._last_alert.screen)
        self.cockpit.visit(self._last_alert.at)

    def _call(self, alert: Alert) -> None:
        """A toast; and for what happens now bell, desktop and command, as the settings ask for them.

        A recording tells of what was, but for the last moments of one that another process still writes.
        """
        self._last_alert, settings = alert, self._alert_settings
        self.notify(alert.text, title="a shows it", severity=alert.severity, markup=False)
        recorded = self.player is not None and self.player.present is None
        if settings is None or self.rights.served or (recorded and abs(time.time() - alert.at) > FRESH_S):
            return
        if settings.bell:
            self.bell()
        if settings.desktop and self._driver is not None:
            self._driver.write(desktop_note(alert.text))
        if settings.command:
            failure = run_command(settings.command, alert.text)
            if failure:
                self.cockpit.say(failure)

    def _read_settings(self) -> None:
        """After the first paint, which need not wait for it."""
        from distmon.launcher.settings import AlertSettings, load_settings

        try:
            self._alert_settings = load_settings(Path.cwd()).alerts
        except DistmonError as error:
            self.cockpit.say(str(error))
            self._alert_settings = AlertSettings()
        self._alerts = Alerts(self._alert_settings.on)

    def action_next_theme(self) -> None:
        names = list(PALETTES)
        position = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(position + 1) % len(names)]
        self.cockpit.say(f"theme {self.theme.removeprefix('distmon-')}")
        self.cockpit.rearrange()
        self.cockpit.page.rearrange()

    async def action_play(self, action: str) -> None:
        """A key of the bar, which has no focus of its own."""
        for command in self.cockpit.commands:
            if command.action == action:
                await self.cockpit.do(command)

    def action_command_palette(self) -> None:
        from distmon.tui.screens.palette import Commands, OncePalette

        if self.screen is self.cockpit:
            self.push_screen(OncePalette([Commands], id="--command-palette"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette offers every command of the table, under its own name."""
        for command in self.cockpit.commands:
            if command.action != "command_palette":
                yield SystemCommand(command.label, command.help, partial(self.cockpit.do, command))


def _timed_facts(state: SessionState, before: Facts, fresh: tuple[str, ...], cut_off: bool) -> tuple[Facts, float]:
    """The facts, and the CPU time of this thread that they took."""
    begun = time.thread_time()
    return facts(state, before, fresh, cut_off=cut_off), time.thread_time() - begun


def _timed_verdicts(state: SessionState) -> tuple[list[Verdict], float]:
    """The findings, and the CPU time of this thread that they took."""
    begun = time.thread_time()
    return verdicts(state), time.thread_time() - begun


def no_colours(environment: Mapping[str, str]) -> bool:
    """True where the user wants none, or the terminal has none."""
    if environment.get("NO_COLOR"):
        return True
    return environment.get("TEXTUAL_COLOR_SYSTEM", "auto") == "auto" and is_monochrome(environment.get("TERM", ""))


def few_colours(environment: Mapping[str, str]) -> bool:
    """True where the terminal's own sixteen colours are all there is."""
    term, rich_colours = environment.get("TERM", ""), environment.get("COLORTERM", "")
    system = environment.get("TEXTUAL_COLOR_SYSTEM", "auto")
    if system != "auto":
        return system in ("standard", "windows")
    return rich_colours.lower() not in ("truecolor", "24bit") and term.rpartition("-")[2] not in ("256color", "kitty")


def freeze_garbage() -> None:
    """What is alive after the first paint stays alive: leave it out of later collections, and make full ones rare.

    The state is large and without cycles; a full collection over it would hold up a key by tens of milliseconds. Of what a
    thousand nodes tell, 10,000 lists and tuples are under way in half a second and soon go by themselves: looking at each of them
    so often takes a twentieth of the fold.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
