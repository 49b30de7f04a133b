"""How an asset gets its artifact: reused if committed, built here if light, else as a job that is followed."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg

from marin_assets.guards import refuse_emptied_inputs
from marin_assets.keys import asset_key
from marin_assets.metadata import artifact_metadata, data_version, image_metadata
from marin_assets.progress import JobProgress
from marin_core import environment
from marin_core.build import BuildOptions, build
from marin_core.errors import MarinError
from marin_core.graph import CHECKPOINTS, LabGraph
from marin_core.jobs import JobSpec, JobState, LocalLauncher, follow
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

    @cached_property
    def launcher(self) -> LocalLauncher:
        self._started_launcher = True
        return LocalLauncher(self.store, environment.state_folder(), self.options)

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
        self, context: dg.AssetExecutionContext, specs: Sequence[ArtifactSpec], pools: Sequence[str]
    ) -> dict[str, tuple[ArtifactRecord, bool]]:
        """The records of artifacts, (record, reused) by fingerprint; missing ones run as jobs in one of `pools`.

        Raises:
            MarinError: some could not be built; the message names each with its reason. The others are committed.
        """
        found = {spec.fingerprint: self.store.current(spec) for spec in specs}
        missing = [spec for spec in specs if found[spec.fingerprint] is None]
        failures = self._run_jobs(context, missing, pools) if missing else {}
        if failures:
            raise MarinError("; ".join(f"{label}: {reason}" for label, reason in failures.items()))
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
        return artifact_metadata(record, url, reused=reused) | images

    def _run_jobs(
        self, context: dg.AssetExecutionContext, specs: Sequence[ArtifactSpec], pools: Sequence[str]
    ) -> dict[str, str]:
        """Run jobs to their end; returns label -> reason of those that failed."""
        # The longest first, so that none is left running alone at the end.
        ordered = sorted(specs, key=lambda spec: -float(spec.config.get("plan", {}).get("flops", 0)))
        handles = [self.launcher.submit(JobSpec(spec, tuple(pools))) for spec in ordered]
        with JobProgress(context, [handle.job for handle in handles]) as progress:
            follow(handles, progress.update)
        failed = [h for h in handles if h.status().state is not JobState.SUCCEEDED]
        return {h.job.artifact.label: h.status().reason for h in failed}
