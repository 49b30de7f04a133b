"""How an asset gets its artifact: reused if committed, built here if light, else as a job that is followed."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import dagster as dg

from marin_assets.command_line import typed_command
from marin_assets.following import JobEnd, run_jobs
from marin_assets.guards import refuse_emptied_inputs
from marin_assets.issues import issue_metadata
from marin_assets.job_outcomes import (
    begun_job,
    diverged_run,
    end_metadata,
    finished_job,
    run_numbers,
    unfinished_job,
)
from marin_assets.keys import asset_key
from marin_assets.metadata import artifact_metadata, data_version, image_metadata
from marin_assets.provenance import provenance_tags
from marin_assets.tables import table_metadata
from marin_core import environment
from marin_core.build import BuildOptions, build
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.graph.placement import job_of
from marin_core.jobs import JobFailed, JobSpec, JobState, Launcher, open_launcher
from marin_core.jobs.estimate import check_fits, estimate, refuse_too_many_flops
from marin_core.profile import Profile
from marin_core.store import ArtifactRecord, ArtifactSpec, Store
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
        self._ended: dict[str, JobEnd] = {}

    @cached_property
    def launcher(self) -> Launcher:
        self._started_launcher = True
        place = self.profile.place
        state = environment.state_folder()
        return open_launcher(self.store, state, self.options, place.kubernetes, place.tracking_variables)

    @property
    def options(self) -> BuildOptions:
        return BuildOptions(
            scratch=environment.state_folder() / "scratch",
            checkpoint_every_seconds=self.profile.place.checkpoint_every_seconds,
            checkpoint_every_steps=self.profile.place.checkpoint_every_steps,
            command=typed_command(),
            dagster_run=self._dagster_run,
            ranks=self.profile.place.data_ranks,
        )

    def close(self) -> None:
        if self._started_launcher:
            self.launcher.close()

    def run(self, key: str) -> ArtifactSpec:
        """The training run of a partition.

        Raises:
            MarinError: it is a held-out run, and there is no forecast that says which model it is.
        """
        return self.heldout_runs()[key] if key in self.graph.heldout_partitions else self.graph.cells[key]

    def heldout_runs(self) -> dict[str, ArtifactSpec]:
        """The held-out training runs by partition key.

        Raises:
            MarinError: there is no forecast that says which models they are.
        """
        if self.store.current(self.graph.forecast) is None:
            raise MarinError(
                f"which models the held-out runs are stands in {self.graph.forecast.name}, which is not in the store, "
                f"or no longer fits; materialize it first, for instance with 'delphi/*'"
            )
        return self.graph.heldout_runs(self.store)

    def obtain(
        self,
        context: dg.AssetExecutionContext,
        specs: Sequence[ArtifactSpec],
        when_built: Callable[[ArtifactSpec], None] = lambda spec: None,
    ) -> dict[str, tuple[ArtifactRecord, bool]]:
        """The records of artifacts, (record, reused) by fingerprint; missing ones run as jobs, and `when_built` is told
        of each that is committed.

        Raises:
            JobFailed: some could not be built; the message names each with its reason. The others are committed.
            MarinError: they would cost more than the profile allows.
        """
        found = self.store.all_current(specs)
        missing = [spec for spec in specs if found[spec.fingerprint] is None]
        if missing:
            self._build(context, missing, when_built)
        return {
            spec.fingerprint: (found[spec.fingerprint] or self.store.artifact(spec).record, spec not in missing)
            for spec in specs
        }

    def materialize(self, context: dg.AssetExecutionContext, spec: ArtifactSpec) -> dg.MaterializeResult:
        """The result of an asset whose artifact is `spec`."""
        reused = self.store.current(spec) is not None
        return self.result(self.made(context, spec), reused)

    def made(self, context: dg.AssetExecutionContext, spec: ArtifactSpec) -> ArtifactRecord:
        """The record of an artifact, built here if it is light, else as a job, unless it is committed."""
        if record := self.store.current(spec):
            return record
        refuse_emptied_inputs(self.graph, self.store, spec)
        if TASKS[spec.task].light:
            return build(spec, self.store, self.options, context.log.info)
        return self.obtain(context, [spec])[spec.fingerprint][0]

    def result(self, record: ArtifactRecord, reused: bool) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=self._metadata(record, reused), data_version=data_version(record))

    def report(
        self, context: dg.AssetExecutionContext, spec: ArtifactSpec, record: ArtifactRecord, *, reused: bool
    ) -> None:
        """An artifact, of a partition or not, as a materialization in the step of another asset. The record may have
        been made under another partition key: that is no part of what it is."""
        context.log_event(
            dg.AssetMaterialization(
                asset_key(spec.name),
                partition=spec.partition,
                metadata=self._metadata(record, reused),
                tags=provenance_tags(context, asset_key(spec.name), spec.partition, record),
            )
        )

    def observe(self, context: dg.AssetExecutionContext, spec: ArtifactSpec) -> None:
        """A training run of this step that another asset asked for, as an observation of its partition: one that is
        shown as a materialization would have to be a partition of the ladder."""
        record = self.store.artifact(spec).record
        if record.summary["status"] != "diverged":
            context.log_event(finished_job(self._ended[spec.fingerprint], record))

    def _metadata(self, record: ArtifactRecord, reused: bool) -> Mapping[str, dg.MetadataValue]:
        artifact = self.store.opened(record)
        images = image_metadata(artifact, record.summary.get("figures", []))
        about = table_metadata(artifact) | issue_metadata(self.graph, record)
        job = end_metadata(self._ended[record.fingerprint]) if record.fingerprint in self._ended else {}
        made = {} if reused else {"began": dg.MetadataValue.text(record.provenance.started)} | _last_step(record)
        return artifact_metadata(record, artifact.url, reused=reused) | about | made | job | images

    def _build(
        self,
        context: dg.AssetExecutionContext,
        specs: Sequence[ArtifactSpec],
        when_built: Callable[[ArtifactSpec], None],
    ) -> None:
        place = self.profile.place
        jobs = [job_of(spec, self.graph, place) for spec in specs]
        refuse_too_many_flops(jobs, environment.max_flops() or place.max_flops)
        for job in jobs:
            check_fits(estimate(job, place.assumed_mfu, place.prices))

        def on_begin(job: JobSpec, began: datetime) -> None:
            # Of what takes long it is told at once, for the case that this process does not live to tell its end.
            if TASKS[job.artifact.task].tracked:
                context.log_event(begun_job(job, began))

        def on_end(end: JobEnd) -> None:
            spec = end.job.artifact
            self._ended[spec.fingerprint] = end
            if end.status.state is not JobState.SUCCEEDED:
                context.log_event(unfinished_job(end))
                return
            record = self.store.artifact(spec).record
            if record.summary.get("status") == "diverged" and "plan" in spec.config:
                context.log_event(diverged_run(end, record))
            when_built(spec)

        on_cancel = place.kubernetes.on_cancel if place.kubernetes else "cancel"
        # A pod that waits for its node holds nothing yet.
        begins_in = JobState.RUNNING if place.kubernetes else JobState.STARTING
        ended = run_jobs(context, self.launcher, jobs, on_begin, on_end, on_cancel, begins_in)
        if failed := {label: status for label, status in ended.items() if status.state is not JobState.SUCCEEDED}:
            raise JobFailed(failed)


def _last_step(record: ArtifactRecord) -> dict[str, dg.MetadataValue]:
    """Of a training run the index of its last step."""
    last = run_numbers(record).get("last_step")
    return {} if last is None else {"last_step": dg.MetadataValue.int(last)}
