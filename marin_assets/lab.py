"""How an asset gets its artifact: reused if committed, built here if light, else as a job that is followed."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg

from marin_assets.following import run_jobs
from marin_assets.guards import refuse_emptied_inputs
from marin_assets.keys import asset_key
from marin_assets.metadata import artifact_metadata, data_version, image_metadata, job_metadata
from marin_core import environment
from marin_core.build import BuildOptions, build
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.jobs import JobFailed, JobSpec, JobState, JobStatus, Launcher, open_launcher
from marin_core.jobs.estimate import check_fits, estimate, refuse_too_many_flops
from marin_core.profile import Profile
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store
from marin_core.tasks import TASKS


class Lab:
    """A profile at work: its graph, its store, its launcher. One per Dagster run."""

    def __init__(self, profile: Profile, dagster_run: str | None = None):
        self.profile = profile
        self.graph = LabGraph.of(profile)
        self.store = Store(profile.place.store)
        self._dagster_run = dagster_run
        self._started_launcher = False
        # How the jobs of this run ended, by the artifact's fingerprint.
        self._ended: dict[str, JobStatus] = {}

    @cached_property
    def launcher(self) -> Launcher:
        self._started_launcher = True
        return open_launcher(self.store, environment.state_folder(), self.options, self.profile.place.kubernetes)

    @property
    def options(self) -> BuildOptions:
        return BuildOptions(
            scratch=environment.state_folder() / "scratch",
            checkpoint_every_seconds=self.profile.place.checkpoint_every_seconds,
            checkpoint_every_steps=self.profile.place.checkpoint_every_steps,
            command=shlex.join([*(Path(name).name for name in sys.orig_argv[1:2]), *sys.orig_argv[2:]]),
            dagster_run=self._dagster_run,
            ranks=self.profile.place.data_ranks,
        )

    def close(self) -> None:
        if self._started_launcher:
            self.launcher.close()

    def obtain(
        self,
        context: dg.AssetExecutionContext,
        specs: Sequence[ArtifactSpec],
        pools: Sequence[str],
        when_built: Callable[[ArtifactSpec], None] = lambda spec: None,
    ) -> dict[str, tuple[ArtifactRecord, bool]]:
        """The records of artifacts, (record, reused) by fingerprint; missing ones run as jobs in one of `pools`, and
        `when_built` is told of each that is committed.

        Raises:
            JobFailed: some could not be built; the message names each with its reason. The others are committed.
            MarinError: they would cost more than the profile allows.
        """
        found = {spec.fingerprint: self.store.current(spec) for spec in specs}
        missing = [spec for spec in specs if found[spec.fingerprint] is None]
        if missing:
            self._build(context, missing, pools, when_built)
        return {
            spec.fingerprint: (found[spec.fingerprint] or self.store.artifact(spec).record, spec not in missing)
            for spec in specs
        }

    def materialize(self, context: dg.AssetExecutionContext, spec: ArtifactSpec) -> dg.MaterializeResult:
        """The result of an asset whose artifact is `spec`."""
        record = self.store.current(spec)
        reused = record is not None
        if record is None:
            refuse_emptied_inputs(self.graph, self.store, spec)
            if TASKS[spec.task].light:
                record = build(spec, self.store, self.options, context.log.info)
            else:
                record, _ = self.obtain(context, [spec], self.profile.place.data_pools)[spec.fingerprint]
        return self.result(record, reused)

    def result(self, record: ArtifactRecord, reused: bool) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=self._metadata(record, reused), data_version=data_version(record))

    def report_cell(self, context: dg.AssetExecutionContext, key: str, record: ArtifactRecord, reused: bool) -> None:
        """A cell's run as a materialization of its partition."""
        context.log_event(
            dg.AssetMaterialization(
                asset_key(CHECKPOINTS),
                partition=key,
                metadata=self._metadata(record, reused),
                tags={"dagster/data_version": data_version(record).value},
            )
        )

    def _metadata(self, record: ArtifactRecord, reused: bool) -> Mapping[str, dg.MetadataValue]:
        url = f"{self.store.root}/{record.name}/{record.fingerprint}"
        figures = record.summary.get("figures", [])
        images = image_metadata(Artifact(record, url, self.store.fs), figures) if figures else {}
        job = job_metadata(self._ended[record.fingerprint]) if record.fingerprint in self._ended else {}
        return artifact_metadata(record, url, reused=reused) | job | images

    def _build(
        self,
        context: dg.AssetExecutionContext,
        specs: Sequence[ArtifactSpec],
        pools: Sequence[str],
        when_built: Callable[[ArtifactSpec], None],
    ) -> None:
        place = self.profile.place
        jobs = [self._job(spec, pools) for spec in specs]
        refuse_too_many_flops(jobs, environment.max_flops() or place.max_flops)
        for job in jobs:
            check_fits(estimate(job, place.assumed_mfu, place.prices))

        def on_end(job: JobSpec, status: JobStatus) -> None:
            self._ended[job.artifact.fingerprint] = status
            if status.state is JobState.SUCCEEDED:
                when_built(job.artifact)

        on_cancel = place.kubernetes.on_cancel if place.kubernetes else "cancel"
        ended = run_jobs(context, self.launcher, jobs, on_end, on_cancel)
        if failed := {label: status for label, status in ended.items() if status.state is not JobState.SUCCEEDED}:
            raise JobFailed(failed)

    def _job(self, spec: ArtifactSpec, pools: Sequence[str]) -> JobSpec:
        place = self.profile.place
        return JobSpec(
            spec,
            tuple(pools),
            max_failures=place.max_failures,
            max_preemptions=place.max_preemptions,
            ranks=place.data_ranks if TASKS[spec.task].stage else 1,
        )
