"""Jobs: load, compare, apply, pause, resume, delete, trigger, preview."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from rota.control.alarms import AlarmControl
from rota.control.runs import as_seen, event_shape
from rota.control.survey import Family
from rota.control.values import Shape, fields_of, trigger
from rota.core.define import Apply, Delete, Pause, Resume, Sources, compare
from rota.core.fire import Fire
from rota.core.owed import first_instant
from rota.core.preview import Preview, preview
from rota.core.start import Start
from rota.errors import InvalidInput, NotFound, Problem, RotaError, StoreUnavailable, Undelivered
from rota.model.alarm import AlarmRule, ChannelKind, Message
from rota.model.cluster import Hold
from rota.model.job import Definition, Job, JobName, is_own, without_repository
from rota.model.plan import Committed, JobFilter, Rule
from rota.model.run import Event, Run
from rota.model.states import JobState
from rota.model.value import encode
from rota.ports import Clock, Courier, Store
from rota.transactions.change import change
from rota.transactions.fire import fire

if TYPE_CHECKING:
    from rota.definitions.loaded import Loaded


CATCH_UP = timedelta(seconds=10)
CATCH_UP_ROUNDS = 1000
PAGE = 1000
NO_SOURCES = Sources()


class Action(NamedTuple):
    """What apply does with one definition: create, change, adopt (note its source), nothing, or refuse (and why); for a
    change, which of its fields differ; and whether the job will never be due by itself any more, though it has a
    trigger. `delete` is for jobs that their source no longer defines."""

    name: JobName
    action: str
    fields: tuple[str, ...] = ()
    never_due: bool = False
    reason: str = ""


class JobControl(Family):
    def __init__(self, store: Store, clock: Clock, alarms: AlarmControl) -> None:
        super().__init__(store, clock)
        self._alarms = alarms

    async def load(self, paths: Sequence[str], repository: str = "") -> Loaded:
        """Read the definitions of files and folders, and of which repository they are. Nothing is stored."""
        from rota.definitions.folder import Watched

        return await Watched(paths, lambda: self._clock.wall().date(), repository=repository).load()

    async def plan(self, definitions: Sequence[Definition], sources: Sources = NO_SOURCES) -> list[Action]:
        """Say what apply would do; change nothing."""
        _refuse_twins(definitions)
        found = await self._store.named([it.full_name for it in definitions])
        now = await self._store.now()
        stored = {job.definition.full_name: job for job in found}
        return [
            Action(
                name,
                action,
                fields=_differing(stored[name].definition, wanted) if action == "change" else (),
                never_due=wanted.fires_by_itself and first_instant(wanted, now) is None,
                reason=(sources.refusal(stored[name]) or "") if action == "refuse" else "",
            )
            for wanted, (name, action) in zip(definitions, compare(stored, definitions, sources), strict=True)
        ]

    async def apply(self, definitions: Sequence[Definition], sources: Sources = NO_SOURCES) -> list[Action]:
        """Store the definitions, all of them in one transaction or none. Says what became of each; those that are
        refused, because they are another source's, are left out."""
        planned = await self.plan(definitions, sources)
        if any(it.action not in ("nothing", "refuse") for it in planned):
            rule = Apply(definitions=tuple(definitions), sources=sources)
            await self._change([it.name for it in planned], rule)
        refused = {it.name for it in planned if it.action == "refuse"}
        await self._alarms.align([it for it in definitions if it.full_name not in refused])
        return planned

    async def orphans(self, definitions: Sequence[Definition], sources: Sources, repository: str = "") -> list[Action]:
        """The jobs that the sources once defined, and do not define any more. Refused where jobs of others could be
        taken for them. Who takes over takes also what a file defined before its repository was named."""
        own = {it for it in sources.covered if is_own(it, repository)}
        if not own or not own.issuperset(sources.by_name.values()):
            (ambiguous, *_) = sorted(sources.covered - own)
            raise InvalidInput.of(
                "--prune",
                f"{ambiguous} could also be a file of another repository, whose jobs must not be deleted; name its "
                "repository: --repository NAME, or definitions.repository in rota.toml; the first time with "
                "--take-over",
            )
        if sources.take_over:
            own |= {without_repository(it, repository) for it in own}
        kept = {it.full_name for it in definitions}
        found = [job async for job in self._all_jobs() if job.source in own]
        return [
            Action(job.definition.full_name, "delete", reason=f"{job.source} does not define it any more")
            for job in found
            if job.definition.full_name not in kept
        ]

    async def prune(self, orphans: Sequence[Action]) -> None:
        """Delete jobs that their source no longer defines. Any source may define them again."""
        names = [it.name for it in orphans]
        if names:
            await self._change_existing(names, Delete(source=""), waiting=True)
            await self._alarms.align([], gone=names)

    async def _all_jobs(self) -> AsyncIterator[Job]:
        after = 0
        while page := await self.find(JobFilter(after_id=after, limit=PAGE)):
            for job in page:
                yield job
            after = page[-1].id

    async def pause(self, names: Sequence[JobName]) -> list[Job]:
        return await self._change_existing(names, Pause())

    async def resume(self, names: Sequence[JobName]) -> list[Job]:
        return await self._change_existing(names, Resume())

    async def delete(self, names: Sequence[JobName]) -> list[Job]:
        deleted = await self._change_existing(names, Delete(), waiting=True)
        await self._alarms.align([], gone=names)
        return deleted

    async def trigger(self, name: JobName, params: Mapping[str, object], key: str | None = None) -> Run:
        """Start a run now, under the job's overlap policy; the same key starts it once."""
        from rota.definitions.requests import run_key, run_params

        key = self._clock.token() if key is None else run_key(key)
        job = await self.get(name)
        rule = Start(name=name, key=key, params=run_params(job.definition, params))
        done = await self._store.transact(change, [name], rule, known=[(name, rule.key)])
        if not done.runs:
            raise NotFound(f"there is no job {name}")
        return (await as_seen(self._store, done.runs))[0]

    async def get(self, name: JobName) -> Job:
        return (await self._existing([name]))[0]

    async def find(self, wanted: JobFilter) -> tuple[Job, ...]:
        return await self._store.jobs(wanted)

    async def preview(self, name: JobName, count: int) -> tuple[Job, tuple[Preview, ...]]:
        """The next instants of a job, from the store's now."""
        job = await self.get(name)
        now = await self._store.now()
        return job, preview(job.definition, now, count, pending=job.pending)

    def preview_of(self, definition: Definition, count: int) -> tuple[Preview, ...]:
        """The next instants of a definition that is not stored, from this host's now."""
        return preview(definition, self._clock.wall(), count)

    async def _existing(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        """Return the jobs of these names. Raises NotFound if one is missing."""
        found = await self._store.named(names)
        states = {job.definition.full_name: job.state for job in found}
        for name in names:
            if name not in states:
                raise NotFound(f"there is no job {name}; see: rota job list")
            if states[name] is JobState.DELETED:
                raise NotFound(f"job {name} was deleted; apply its definition to bring it back")
        return found

    async def _change_existing(self, names: Sequence[JobName], rule: Rule, *, waiting: bool = False) -> list[Job]:
        await self._existing(names)
        await self._change(names, rule, waiting=waiting)
        return list(await self._store.named(names))

    async def _change(self, names: Sequence[JobName], rule: Rule, *, waiting: bool = False) -> Committed:
        await self._catch_up(names)
        return await self._store.transact(change, names, rule, waiting=waiting)

    async def _catch_up(self, names: Sequence[JobName]) -> None:
        """Fire a backlog in rounds first: settling it in the change itself would hold its locks too long. A job that
        somebody else is firing is waited for, within reason."""
        for _ in range(CATCH_UP_ROUNDS):
            found, now = await self._store.named(names), await self._store.now()
            holds = await self._store.holds()
            free = [job for job in found if not any(it.covers(job.definition.full_name) for it in holds)]
            behind = [job.id for job in free if job.is_due(now - CATCH_UP)]
            if not behind:
                return
            if (await self._store.transact(fire, behind[:100], Fire())).plan.is_empty:
                await self._clock.sleep(0.05)


class JobCourier:
    """Starts a run for each message of channel `job`, with the message as the parameter `alarm`; hands all others to
    another courier (`ports.Courier`)."""

    def __init__(self, jobs: JobControl, others: Courier) -> None:
        self._jobs = jobs
        self._others = others

    async def send(self, rule: AlarmRule, message: Message) -> str:
        if rule.channel.kind != ChannelKind.JOB:
            return await self._others.send(rule, message)
        name = JobName(*rule.channel.to[0].split("/"))
        try:
            run = await self._jobs.trigger(name, {"alarm": message.shape}, key=f"alarm-{message.id}")
        except StoreUnavailable as error:
            raise Undelivered(f"the store is out of reach: {error}") from error
        except RotaError as error:
            raise Undelivered(str(error)) from error
        return f"run {run.id}"


def sources_of(loaded: Loaded, *, take_over: bool = False, by_hand: bool = False) -> Sources:
    covered = frozenset(loaded.covered)
    return Sources(by_name=dict(loaded.sources), covered=covered, take_over=take_over, by_hand=by_hand)


def _differing(was: Definition, wanted: Definition) -> tuple[str, ...]:
    return tuple(field for field in wanted.__struct_fields__ if getattr(was, field) != getattr(wanted, field))


def _refuse_twins(definitions: Sequence[Definition]) -> None:
    times = Counter(it.full_name for it in definitions)
    twins = [name for name, count in times.items() if count > 1]
    if twins:
        raise InvalidInput([Problem(str(name), "is defined twice") for name in twins])


def job_shape(job: Job) -> Shape:
    made = job.definition
    return {
        "id": job.id,
        "name": str(made.full_name),
        **fields_of(made, "tenant", "project", "title"),
        "state": str(job.state),
        "trigger": trigger(made.schedule.rule),
        **fields_of(job, "next_slot_at", "next_fire_at", "settled_at", "version", "revision", "digest"),
        **fields_of(job, "created_at", "changed_at"),
        "source": job.source or None,
    }


def job_detail_shape(job: Job, holds: Sequence[Hold], history: Iterable[Event]) -> Shape:
    return {
        **job_shape(job),
        "held_by": list(map(str, holds)),
        "definition": json.loads(encode(job.definition)),  # as it is stored: without fields that have their default
        "history": [event_shape(it) for it in history],
    }


def applied_shape(plan: Iterable[Action], *, applied: bool, dry_run: bool) -> Shape:
    return {"applied": applied, "dry_run": dry_run, "actions": [action_shape(it) for it in plan]}


def action_shape(it: Action) -> Shape:
    return {"job": str(it.name), **fields_of(it, "action", "fields", "never_due", "reason")}


def preview_shape(it: Preview) -> Shape:
    return {
        **fields_of(it.instant, "slot_at", "due_at"),
        "local_at": it.local_at.isoformat(),
        **fields_of(it, "mark", "skipped"),
    }
