"""Putting the job in the place of Horovod's own execution of workers, and listening to what Horovod decides.

All hooks are module attributes that Horovod looks up when it calls them. A version that lacks one runs unhooked.
"""

import functools
import importlib
import shlex
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import elastic, remote
from .job import Job, Place, WorkerCommand

_NEEDED = {
    "horovod.runner.launch": ("_run", "parse_args", "_check_all_hosts_ssh_successful"),
    "horovod.runner.gloo_run": (
        "_exec_command_fn",
        "_slot_info_to_command_fn",
        "get_run_command",
        "create_slot_env_vars",
        "register_shutdown_event",
        "RendezvousServer",
        "network",
    ),
    "horovod.runner.util.network": ("resolve_host_address", "get_local_host_addresses"),
    "horovod.runner.common.util.env": ("is_exportable", "is_kubeflow_mpi"),
    "horovod.runner.util.remote": ("get_ssh_command",),
}


class Shutdown:
    """The event that Horovod's launcher waits on; None until it waits."""

    def __init__(self) -> None:
        self.event: Optional[threading.Event] = None

    def register(self) -> threading.Event:
        """Stands for gloo_run.register_shutdown_event: the driver keeps its own signal handlers and sets this event."""
        self.event = threading.Event()
        return self.event


def lacking(*, for_elastic: bool) -> List[str]:
    """What this Horovod lacks of the places to hook, as dotted names."""
    needed = dict(_NEEDED)
    if for_elastic:
        needed = {name: (*needed.get(name, ()), *elastic.NEEDED.get(name, ())) for name in [*needed, *elastic.NEEDED]}
    missing = []
    for owner_name, names in needed.items():
        owner = _find(owner_name)
        if owner is None:
            missing.append(owner_name)
        else:
            missing += [f"{owner_name}.{name}" for name in names if not hasattr(owner, name)]
    return missing


def _find(dotted: str) -> Any:
    """A module, or a class in one; None where there is none."""
    try:
        return importlib.import_module(dotted)
    except ImportError:
        module, _, name = dotted.rpartition(".")
        return getattr(sys.modules.get(module), name, None)


def starts_by_kubexec() -> bool:
    """Whether Kubeflow's script stands for ssh: it passes no standard input, which a supervisor needs."""
    return bool(importlib.import_module("horovod.runner.common.util.env").is_kubeflow_mpi())


def install(job: Job, shutdown: Shutdown, *, for_elastic: bool) -> None:
    """Hook the horovod.runner of this process."""
    gloo_run = importlib.import_module("horovod.runner.gloo_run")
    _hook_execution(gloo_run, job)
    setattr(gloo_run, "register_shutdown_event", shutdown.register)  # noqa: B010
    _hook_ssh()
    _hook_progress(job)
    if for_elastic:
        elastic.install(job)


def _hook_execution(gloo_run: Any, job: Job) -> None:
    shell_line = gloo_run.get_run_command
    exportable = importlib.import_module("horovod.runner.common.util.env").is_exportable

    def get_run_command(command: List[str], *args: Any, **kwargs: Any) -> Tuple[List[str], Dict[str, str]]:
        words = shlex.split(shell_line(["--"], *args, **kwargs))
        return command, dict(word.split("=", 1) for word in words[:-1])

    def slot_info_to_command_fn(run_command: Any, env: Dict[str, str]) -> Callable[[Any], WorkerCommand]:
        argv, run_environment = run_command

        def slot_info_to_command(slot: Any) -> WorkerCommand:
            environment = dict(env, PYTHONUNBUFFERED="1")
            environment.update(gloo_run.create_slot_env_vars(slot))
            environment.update(run_environment)
            return WorkerCommand(argv, environment)

        return slot_info_to_command

    def exec_command_fn(settings: Any) -> Callable[..., Tuple[int, float]]:
        def exec_command(command: WorkerCommand, slot: Any, events: Any) -> Tuple[int, float]:
            local = _is_local(gloo_run.network, slot.hostname)
            if not local:
                command = WorkerCommand(command.argv, _for_other_host(command.environment, exportable))
            static = not getattr(settings, "elastic", False)
            place = Place(slot.rank, slot.hostname, slot.local_rank, job.generation, local, static)
            return job.run_worker(command, place, settings, events or []), time.time()

        return exec_command

    gloo_run.get_run_command = get_run_command
    gloo_run._slot_info_to_command_fn = slot_info_to_command_fn
    gloo_run._exec_command_fn = exec_command_fn


def _is_local(network: Any, host: str) -> bool:
    return network.resolve_host_address(host) in network.get_local_host_addresses()


def _for_other_host(environment: Dict[str, str], exportable: Callable[[str], bool]) -> Dict[str, str]:
    """As Horovod forwards it, but with exported shell functions, which it leaves out only because its shells trip over them."""
    return {name: value for name, value in environment.items() if exportable(name) or name.startswith("BASH_FUNC_")}


def _hook_ssh() -> None:
    """Horovod's own ssh calls (host check, interface probing) switch host-key checking off and may ask for a password: not so."""
    module = importlib.import_module("horovod.runner.util.remote")
    launch = importlib.import_module("horovod.runner.launch")

    def get_ssh_command(local_command: str, host: str, port: Any = None, identity_file: Any = None, timeout_s: Any = None) -> str:
        words = ["ssh", *remote.ssh_options(port, identity_file), host]
        return " ".join(shlex.quote(word) for word in words) + " " + local_command

    def checked(*hosts: Any, **how: Any) -> bool:
        return True

    setattr(module, "get_ssh_command", get_ssh_command)  # noqa: B010
    setattr(launch, "_check_all_hosts_ssh_successful", checked)  # noqa: B010


def _hook_progress(job: Job) -> None:
    gloo_run = importlib.import_module("horovod.runner.gloo_run")
    launch = importlib.import_module("horovod.runner.launch")
    server = gloo_run.RendezvousServer
    assign = server.init

    @functools.wraps(assign)
    def init(self: Any, plan: List[Any]) -> Any:
        result = assign(self, plan)
        job.assign(plan)
        return result

    server.init = init
    services = getattr(launch, "driver_service", None)
    _announce(job, services, "get_common_interfaces", "checking_hosts", "finding the network interfaces", "start")
    elastic = getattr(gloo_run, "ElasticDriver", None)
    _announce(job, elastic, "wait_for_available_slots", "waiting_for_slots", "waiting for hosts to have enough slots", "slots")
    _hook_mesh(job)


def _announce(job: Job, owner: Any, name: str, stage: str, detail: str, limit: str) -> None:
    """Tell that a stage of the launch begins, and its limit; an attribute that this version lacks is simply not told of."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def announced(*args: Any, **kwargs: Any) -> Any:
        job.progress(stage, detail, limit)
        return original(*args, **kwargs)

    setattr(owner, name, announced)


def _hook_mesh(job: Job) -> None:
    """Every rank puts its addresses into scope `global` when it begins to wait for the others, and takes them out at the end of
    its rendezvous: the last one means that training can start."""
    handler = getattr(importlib.import_module("horovod.runner.http.http_server"), "RendezvousHandler", None)
    if handler is None or not hasattr(handler, "do_DELETE"):
        return
    original, put = handler.do_DELETE, handler.do_PUT

    @functools.wraps(original)
    def do_delete(self: Any) -> Any:
        if self.path.startswith("/global/"):
            job.rank_ready()
        return original(self)

    @functools.wraps(put)
    def do_put(self: Any) -> Any:
        if self.path.startswith("/global/"):
            job.rank_waits()
        return put(self)

    handler.do_DELETE, handler.do_PUT = do_delete, do_put
