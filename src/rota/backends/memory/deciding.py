"""The verbs that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from rota.backends.memory.ground import Ground
from rota.backends.record import STREAK, NewIds, item_state_after, place_of, rows, streak, wanting_streaks
from rota.model.job import Job, JobName, OverlapPolicy
from rota.model.plan import Committed, Crowd, Facts, LiveRun, NewJob, Plan, Rule, RunMove
from rota.model.run import Item, Run, RunKey
from rota.model.states import UNSTARTED, Cause, ItemState, RunState


class Deciding(Ground):
    """Fire and change; and what follows for runs when items of theirs have ended."""

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        now = self._clock.wall()
        jobs = [self._jobs[it] for it in sorted(job_ids) if it in self._jobs]
        return self._decide([job for job in jobs if job.is_due(now) and not self._is_held(job)], rule, counts_all=False)

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        cause: Cause = Cause.MANUAL,
        waiting: bool = False,
    ) -> Committed:
        keys = [RunKey(self._names[name], cause, key) for name, key in known if name in self._names]
        jobs = self._named(names)
        return self._decide(jobs, rule, known=keys, more_keys=self._waiting_keys(jobs) if waiting else ())

    def _named(self, names: Iterable[JobName]) -> list[Job]:
        return [self._jobs[it] for it in sorted(self._names[name] for name in set(names) if name in self._names)]

    def _owners(self, run_ids: Iterable[int]) -> list[Job]:
        return [self._jobs[it] for it in sorted({self._runs[it].job_id for it in run_ids if it in self._runs} - {0})]

    def _waiting_keys(self, jobs: Sequence[Job]) -> set[str]:
        ids = {job.id for job in jobs}
        live = (run for crowd in self._live.values() for run in crowd.values())
        return {run.overlap_key for run in live if run.job_id in ids and run.state is RunState.WAITING}

    def _decide(
        self,
        jobs: Sequence[Job],
        rule: Rule,
        *,
        run_ids: Iterable[int] = (),
        first: Callable[[], Sequence[int]] | None = None,
        known: Sequence[RunKey] = (),
        more_keys: Iterable[str] = (),
        counts_all: bool = True,
    ) -> Committed:
        theirs = [self._runs[it] for it in sorted(set(run_ids)) if it in self._runs]
        keys = {*rule.keys(jobs), *(run.overlap_key for run in theirs), *more_keys}
        concerned = [run.id for run in theirs] if first is None else first()
        crowds = {key: self._crowd(key, jobs) for key in keys}
        others = self._others(jobs, crowds)
        ended, items = [self._runs[it] for it in concerned], self._shown_of(concerned)
        facts = Facts(
            now=self._clock.wall(),
            jobs=tuple(jobs),
            crowds=crowds,
            others=tuple(others),
            live={
                job.id: self._live_of(job.id) for job in (*jobs, *others) if counts_all or job.definition.follows_ends
            },
            runs=tuple(ended),
            items=tuple(items),
            streaks={job.id: self._streak(job) for job in wanting_streaks(jobs, ended, items)},
            known={key: self._runs[self._keys[key]] for key in known if key in self._keys},
            held=frozenset(job.id for job in jobs if self._is_held(job)),
        )
        plan = Plan() if first is not None and not concerned else rule.decide(facts)
        written = tuple(self._commit(plan, facts.now))
        return Committed(now=facts.now, plan=plan, runs=written or tuple(facts.known.values()))

    def _others(self, jobs: Sequence[Job], crowds: dict[str, Crowd]) -> list[Job]:
        live = {run.job_id for crowd in crowds.values() for run in (*crowd.runs, *crowd.waiting)}
        strangers = [self._jobs[it] for it in sorted(live - {job.id for job in jobs})]
        return [job for job in strangers if job.definition.follows_ends]

    def _crowd(self, key: str, jobs: Iterable[Job]) -> Crowd:
        live = self._live[key].values()
        waiting = [run for run in live if run.state is RunState.WAITING]
        replaces = any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs)
        running = [run for run in live if run.state is RunState.RUNNING] if replaces else []
        return Crowd(
            running=len(live) - len(waiting),
            runs=tuple(self._live_run(run) for run in running),
            waiting=tuple(self._live_run(run) for run in waiting),
        )

    def _live_run(self, run: Run) -> LiveRun:
        started = any(item.state in (ItemState.ASSIGNED, ItemState.RUNNING) for item in self._shown_of([run.id]))
        return LiveRun(id=run.id, job_id=run.job_id, state=run.state, started=started)

    def _streak(self, job: Job) -> int:
        runs = (it for it in self._runs.values() if it.job_id == job.id and it.created_at >= job.changed_at)
        ended = [(it.ended_at, it.id, str(it.state)) for it in runs if it.ended_at is not None and it.state in STREAK]
        return streak(state for _, _, state in sorted(ended, reverse=True))

    def _live_of(self, job_id: int) -> int:
        return sum(run.job_id == job_id for crowd in self._live.values() for run in crowd.values())

    def _put(self, run: Run) -> None:
        self._runs[run.id] = run
        self._keys[run.unique] = run.id
        if run.state.live and run.job_id:
            self._live[run.overlap_key][run.id] = run
        else:
            self._live[run.overlap_key].pop(run.id, None)

    def _commit(self, plan: Plan, now: datetime) -> list[Run]:
        for change in plan.jobs:
            assert self._jobs[change.was.id] == change.was, "the plan was made on other facts"
        for new_run in plan.runs:
            assert (new_run.job_id, new_run.cause, new_run.key) not in self._keys, f"{new_run.key} was fired twice"
        if plan.new_jobs or any(change.now.is_placed != change.was.is_placed for change in plan.jobs):
            self._placed_revision += 1
        job_ids = [self._create(new, now) for new in plan.new_jobs]
        for job in (change.now for change in plan.jobs):
            self._jobs[job.id] = job
            self._versions[job.id, job.version] = job.definition
        moved = self._shown_of(move.run_id for move in plan.moves)
        followers = sorted((item for item in moved if item.state in UNSTARTED), key=lambda item: item.id)
        written = rows(plan, now, self._actor, NewIds(job_ids, self._run_ids, self._row_ids), followers)
        for run in written.runs:
            self._put(run)
        for item in written.items:
            self._items[item.id] = item
            self._items_of[item.run_id].append(item.id)
        for move in plan.moves:
            self._move(move, [item for item in followers if item.run_id == move.run_id], now)
        self._enqueue(written.places)
        for live in plan.cancels:
            run = self._runs[live.id]
            self._put(msgspec.structs.replace(run, cancel_at=run.cancel_at or now))
            self._ask_to_stop([live.id])
        self._events += written.events
        self._note(written.events)
        return written.runs

    def _create(self, new: NewJob, now: datetime) -> int:
        job = Job.created(next(self._job_ids), new.definition, new.digest, new.next, now, new.source)
        self._jobs[job.id] = job
        self._names[new.definition.full_name] = job.id
        self._versions[job.id, job.version] = job.definition
        return job.id

    def _move(self, move: RunMove, followers: Sequence[Item], now: datetime) -> None:
        run = self._runs[move.run_id]
        self._put(msgspec.structs.replace(run, state=move.now, ended_at=None if move.now.live else now))
        if item_state_after(move) is ItemState.CANCELLED:
            self._withdraw([item.id for item in followers], now)
            return
        for item in followers:
            self._items[item.id] = msgspec.structs.replace(item, state=ItemState.READY)
        definition = self._versions[run.job_id, run.version]
        late = run.created_at - run.due_at
        self._enqueue([place_of(item, run.job_id, definition, late) for item in followers])
