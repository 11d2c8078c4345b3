"""The elastic part of a report: who came and left, what it cost, and the lanes of every slot."""

from __future__ import annotations

from collections.abc import Callable

from distmon.core.elastic import Accounts, accounts, generation_spans
from distmon.core.elastic_lanes import lanes
from distmon.core.printable import clean
from distmon.core.state import SessionState
from distmon.replay.report import model

Since = Callable[[float], float]


def summarise_elastic(state: SessionState, since: Since) -> model.Elastic:
    """`since` gives the report's time of a moment: seconds since the job's start."""
    books = accounts(state)
    return model.Elastic(
        generations=len(state.generations),
        events=[
            model.ElasticEvent(
                at_s=since(change.at), kind=change.change, host=clean(change.host), rank=change.rank, detail=clean(change.detail)
            )
            for change in sorted(state.membership, key=lambda change: change.at)
        ],
        lost_s=model.LostTime(**books.lost.parts()) if books else model.LostTime(),
        books=_books(books, since) if books else None,
        goodput_percent=None if books is None or books.goodput is None else 100 * books.goodput,
        redone_steps=books.redone_steps if books else None,
        redone_samples=books.redone_samples if books else None,
        commits=_commits(state, books),
        rounds=_rounds(state, since) if state.elastic.rounds else [],
        lanes=_lanes(state, since),
    )


def _books(books: Accounts, since: Since) -> model.ElasticBooks:
    return model.ElasticBooks(
        from_s=since(books.started),
        to_s=since(books.ended),
        ranks=books.ranks,
        capacity_rank_s=books.capacity_s,
        training_rank_s=books.training_s,
        unexplained_rank_s=books.unexplained_s,
    )


def _commits(state: SessionState, books: Accounts | None) -> model.Commits | None:
    probes = state.elastic.probes.values()
    count, seconds = sum(probe.commits for probe in probes), sum(probe.commit_s for probe in probes)
    if not count:
        return None
    share = 100 * seconds / books.training_s if books and books.training_s > 0 else None
    return model.Commits(count=count, mean_s=seconds / count, share_percent=share)


def _rounds(state: SessionState, since: Since) -> list[model.ElasticRound]:
    def at(moment: float | None) -> float | None:
        return None if moment is None else since(moment)

    return [
        model.ElasticRound(
            generation=span.generation,
            world_size=span.world_size,
            assigned_at_s=at(span.assigned),
            first_step_at_s=at(span.first_step),
            last_step_at_s=at(span.last_step),
            cause=clean(span.cause),
            rendezvous_s=span.rendezvous_s,
            initialisation_s=span.initialisation_s,
            sync_s=span.sync_s,
            first_step_s=span.first_step_s,
            usual_step_s=span.usual_step_s,
            undone_steps=span.undone_steps,
        )
        for span in generation_spans(state)
    ]


def _lanes(state: SessionState, since: Since) -> list[model.ElasticLane]:
    return [
        model.ElasticLane(
            host=clean(lane.host),
            local_rank=lane.local_rank,
            ended=clean(lane.end),
            failed=lane.failed,
            segments=[
                model.ElasticSegment(
                    kind=segment.kind,
                    from_s=since(segment.started),
                    to_s=since(segment.ended),
                    generation=segment.generation,
                    rank=segment.rank,
                )
                for segment in lane.segments
            ],
        )
        for lane in lanes(state)
    ]
