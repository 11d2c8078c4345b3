from .worker import Worker


def install(worker: Worker) -> None:
    pass
