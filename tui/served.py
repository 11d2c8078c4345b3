"""The screens in a browser: textual-serve behind a guard of our own, which it does not have.

Every request must carry the token as the first part of its path, come to a name of this machine, and, where a browser says from
which page it comes, from one of ours. Each page is a process of its own that shows what it is told to show.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import shlex
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence

import aiohttp_jinja2
from aiohttp import web
from textual_serve.server import Server

from distmon.core.errors import DistmonError

MAX_VIEWS = 16
"""Pages at once: each is a process."""
SHUTDOWN_S = 2.0
_SOURCES = "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self' ws: wss:; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": _SOURCES,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""Nothing is loaded from elsewhere, and the token is told to nobody."""
AFTERWARDS = """<script>
(() => {
  const said = document.querySelector(".closed-dialog .message"), again = document.querySelector(".closed-dialog button");
  let lost = false;
  async function look() {
    const answer = await fetch(location.href, {cache: "no-store"}).catch(() => null);
    again.style.display = answer === null || answer.status === 403 ? "none" : "";
    if (answer === null) {
      lost = true;
      said.textContent = "distmon serve has ended, or cannot be reached. This page looks for it every two seconds.";
    } else if (answer.status === 403) {
      said.textContent = "distmon serve was started anew: open the address that it has printed.";
      return;
    } else if (answer.ok && lost) {
      location.reload();
      return;
    } else {
      said.textContent = answer.ok ? "This view has ended." : await answer.text();
    }
    setTimeout(look, 2000);
  }
  const watch = new MutationObserver(() => {
    if (document.body.classList.contains("-closed")) { watch.disconnect(); look(); }
  });
  watch.observe(document.body, {attributes: true, attributeFilter: ["class"]});
  const drawn = new MutationObserver(() => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (keys) { drawn.disconnect(); keys.focus(); }
  });
  drawn.observe(document.body, {childList: true, subtree: true});
})();
</script>"""
"""At the end of the page: gives the screen the keys once it is there, says why it shows nothing more, and comes back by itself
where only the way to the server was lost."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. Raises DistmonError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise DistmonError(f"cannot listen on {host}:{port}: {error.strerror}; give another --port") from None


class ServedView(Server):
    """Serves what `command` shows; `exposed` where other machines may come too."""

    def __init__(self, command: Sequence[str], *, exposed: bool = False) -> None:
        super().__init__(shlex.join(command), title="distmon")
        self.token = secrets.token_urlsafe(24)
        self._exposed = exposed
        self._views = 0

    async def serve_until(self, ended: asyncio.Event, listener: socket.socket, tell: Callable[[str], None]) -> None:
        """Serve until then; `tell` gets the address to open."""
        guarded = web.Application(middlewares=[self._guard])
        guarded.on_response_prepare.append(_add_headers)
        guarded.add_subapp(f"/{self.token}", await self._make_app())
        runner = web.AppRunner(guarded, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        name, port = listener.getsockname()[:2]
        tell(f"http://{f'[{name}]' if ':' in name else name}:{port}/{self.token}/")
        await ended.wait()
        await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._allows(request):
            raise web.HTTPForbidden(text="403: open the whole address that distmon serve has printed\n")
        return await handler(request)

    def _allows(self, request: web.Request) -> bool:
        token = request.path.split("/")[1]
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        origin = request.headers.get("Origin")
        return known and self._is_own_name(request.host) and origin in (None, f"{request.scheme}://{request.host}")

    def _is_own_name(self, host: str) -> bool:
        """Not one that somebody's name server points here. Any port: it may come through a tunnel."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return self._exposed or is_loopback(name.strip("[]"))

    # --- what textual-serve calls ---------------------------------------------------------------------------------

    async def on_startup(self, app: web.Application) -> None:
        """Without its banner: what is served is told by the command."""

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """Its page, with addresses under the name by which the browser came, and words of ours for its end."""
        self._refuse_more_views()
        router = request.app.router
        base = f"{request.scheme}://{request.host}"
        static = f"{base}{router['static'].url_for(filename='/')}".rstrip("/") + "/"
        websocket = f"{base}{router['websocket'].url_for()}".replace("http", "ws", 1)
        context = {
            "font_size": 16,
            "app_websocket_url": websocket,
            "config": {"static": {"url": static}},
            "application": {"name": self.title},
        }
        page = aiohttp_jinja2.render_string("app_index.html", request, context)
        page = re.sub(r"<link\b[^>]*>", lambda link: link[0] if base in link[0] else "", page)  # a font of another host
        return web.Response(text=page.replace("</body>", f"{AFTERWARDS}</body>"), content_type="text/html")

    def _refuse_more_views(self) -> None:
        if self._views >= MAX_VIEWS:
            raise web.HTTPServiceUnavailable(text=f"{MAX_VIEWS} pages are open already; close one\n")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        self._refuse_more_views()
        self._views += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._views -= 1


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


async def serve_until_signal(view: ServedView, listener: socket.socket, tell: Callable[[str], None]) -> int:
    """Serve until Ctrl-C or SIGTERM; the number of the signal."""
    ended, loop, numbers = asyncio.Event(), asyncio.get_running_loop(), list[int]()

    def end(number: int) -> None:
        numbers.append(number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    await view.serve_until(ended, listener, tell)
    return numbers[0]
