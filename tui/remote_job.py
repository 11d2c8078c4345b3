"""A job that another distmon on this machine runs, acted on through its socket: for views that follow its recording."""

from __future__ import annotations

from collections.abc import Mapping

from distmon.core.errors import DistmonError
from distmon.launcher.actions import AnyAction
from distmon.launcher.control import ask
from distmon.launcher.host_file import FILE_NAME, read_hosts
from distmon.launcher.rundir import RunningJob, running_jobs


class RemoteJob:
    """Has what an operator needs of a job (ports.Job), but for its end, which leaving a view does not bring."""

    stopping = False
    """Not known here: its recording tells."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    @property
    def hosts(self) -> Mapping[str, int] | None:
        file = self._job.folder / FILE_NAME
        try:
            return read_hosts(file) if file.exists() else None
        except DistmonError:
            return None  # it has ended just now

    def told_of_host(self, host: str) -> str:
        """In words whether a host answers, by the user's own ssh settings; waits for it."""
        from distmon.launcher.check import told_of_host  # is not needed for the other actions

        return told_of_host(host)

    def act(self, action: AnyAction) -> str:
        return ask(self._job, action)


def remote_job(name: str) -> RemoteJob | None:
    """The job of this name, where it runs on this machine now."""
    return next((RemoteJob(job) for job in running_jobs() if name and job.name == name), None)
