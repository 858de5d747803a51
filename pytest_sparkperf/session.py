"""The one stateful object of a run, kept in ``config.stash``: settings, targets, servers, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sparkperf.core.dataset import is_file
from pytest_sparkperf.core.design import check_claims, claims_of
from pytest_sparkperf.core.document import parse_targets
from pytest_sparkperf.core.errors import ConfigError, SparkPerfError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.kept import KEPT, gate_digest, is_worth_keeping
from pytest_sparkperf.core.kinds import is_plain_mapping
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.residents import fit_together, residents
from pytest_sparkperf.core.result import RequestResult, Result
from pytest_sparkperf.core.server_memory import check_facts_of
from pytest_sparkperf.core.shared import check_shared
from pytest_sparkperf.core.sweep import Cell
from pytest_sparkperf.core.targets import SIMULATOR, Config, Target, find_target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.options import Settings

if TYPE_CHECKING:
    from pytest_sparkperf.adapters.config_ref import FilesAtRef
    from pytest_sparkperf.adapters.kept_file import KeptFile
    from pytest_sparkperf.adapters.server import Server
    from pytest_sparkperf.adapters.store import Files
    from pytest_sparkperf.experiment.bench import Bench
    from pytest_sparkperf.experiment.stored import Keeping

# The target that --sparkperf-url describes; a name that yaml may also use is overridden by it.
URL_TARGET = "sparkperf-url"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one gate's report said; made of plain values, so that it passes through xdist."""

    outcome: str
    lines: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """State of one pytest run. Nothing of the measuring layers is imported before a gate needs it."""

    settings: Settings
    config: Config
    targets: Mapping[str, Target] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    trouble: str | None = None
    say: Callable[[str], None] = lambda _: None
    make_folder: Callable[[str], Path] | None = None
    ask_facts: Callable[[str, Mapping[str, Any]], Sequence[Mapping[str, Any] | None]] = lambda *_: ()
    changed: list[str] = field(default_factory=list)
    _at_ref: FilesAtRef | None = None
    _baselines: Files | None = None
    _variants: list[Variant] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    recordable: int = 0
    _limits: int = 0
    _kept: KeptFile | None = None
    _asked: dict[str, int] = field(default_factory=dict)
    _bench: Bench | None = None
    _logs: Path | None = None

    @classmethod
    def open(cls, settings: Settings) -> Run:
        """Read the file that names the servers, find the stored runs; raises UsageError where it cannot."""
        config, at_ref = Config(), None
        if settings.enabled and settings.config_file is not None:
            from pytest_sparkperf.adapters.config_file import read_config
            from pytest_sparkperf.adapters.config_ref import FilesAtRef

            try:
                if settings.config_ref is None:
                    config = read_config(settings.config_file)
                else:
                    at_ref = FilesAtRef(settings.config_ref, settings.rootdir)
                    config = at_ref.config(settings.config_file)
            except ConfigError as error:
                where = "" if settings.config_ref is None else "--sparkperf-config-ref: "
                raise pytest.UsageError(f"{where}{error}") from None
        run = cls(settings, config)
        run._at_ref = at_ref
        if settings.enabled and settings.baseline_ref is not None:
            from pytest_sparkperf.experiment.baselines import open_files

            try:
                run._baselines = open_files(settings.baseline_dir, settings.baseline_ref, settings.rootdir)
            except ConfigError as error:
                raise pytest.UsageError(f"--sparkperf-baseline-ref: {error}") from None
        if settings.enabled and settings.resume is not None:
            from pytest_sparkperf.adapters.kept_file import KeptFile

            try:
                run._kept = KeptFile(settings.resume)
            except ConfigError as error:
                raise pytest.UsageError(f"--sparkperf-resume: {error}") from None
        return run

    def load_targets(self, config: pytest.Config) -> None:
        """Join the targets of file, hooks and command line, the later ones winning."""
        targets = dict(self.config.targets)
        for found in reversed(config.hook.pytest_sparkperf_targets(config=config)):
            targets |= _targets_of("the hook pytest_sparkperf_targets", found or {})
        if self.settings.urls:
            urls: dict[int | None, str] = dict(self.settings.urls)
            url = urls[None] if set(urls) == {None} else urls
            targets |= _targets_of("--sparkperf-url", {URL_TARGET: {"launch": "attach", "url": url}})
        self.targets = targets
        if self.settings.target is not None and self.settings.target not in targets:
            try:
                find_target(targets, self.settings.target)
            except ConfigError as error:
                raise pytest.UsageError(f"--sparkperf-target: {error}") from None

    def variant(self, spec: GateSpec) -> Variant:
        """Return the server variant that a gate measures; raises ConfigError with what is valid."""
        return make_variant(
            self._target(spec.target),
            k=spec.k,
            args=spec.args,
            env=spec.env,
            model=spec.model,
            image=spec.image,
            executable=spec.executable,
        )

    def _target(self, name: str | None) -> Target:
        if name is None and self.settings.urls:
            name = URL_TARGET
        name = name or self.settings.target or self.config.default_target
        if name is None and not self.targets:
            return self._simulator()
        return find_target(self.targets, name)

    def _simulator(self) -> Target:
        if self.settings.ci:
            raise ConfigError(
                "no target is named, and with CI set the embedded simulator must be asked for by name; name "
                "a server with --sparkperf-url or in sparkperf.yaml, or put a target with launch: sim there"
            )
        return SIMULATOR

    def variants(self, spec: GateSpec) -> dict[Arm, Variant]:
        """Return the variants that a gate measures: B the one under test, A the one it is compared with."""
        variants: dict[Arm, Variant] = {SUBJECT: self.variant(spec)}
        if spec.against is not None:
            variants["A"] = self.variant(spec.reference())
            if variants["A"] == variants[SUBJECT]:
                raise ConfigError(
                    f"against={dict(spec.against)!r} is the server under test itself "
                    f'({variants[SUBJECT].describe()}); name what differs, such as against={{"k": 0}}'
                )
            if fit_together(variants, max_resident=self.config.max_resident):
                return residents(variants, max_resident=self.config.max_resident)
        return variants

    def expect(self, spec: GateSpec) -> None:
        """Note a gate that will run: its server variants and how many limits it judges.

        Raises ConfigError when a target or k cannot be had, its limits can never be proven, or the file of
        its prompts cannot be used.
        """
        claims = claims_of(spec)
        check_claims(spec, claims)
        _check_dataset(spec.load)
        variants = self.variants(spec)
        check_facts_of(spec, variants[SUBJECT])
        for variant in variants.values():
            check_shared(spec, variant)
        self._variants += variants.values()
        self._limits += len(claims)
        self.recordable += bool(spec.by_baseline)

    def list_changes(self, tests: Mapping[str, tuple[Path, str]]) -> None:
        """Note what differs from the ref that the file is read from: the file, and the marks of tests.

        ``tests``: file and name within it (``Class::test``) by the name that is shown.
        """
        if self._at_ref is None or self.settings.config_file is None:
            return
        try:
            self.changed = [
                *self._at_ref.config_changes(self.settings.config_file),
                *self._at_ref.mark_changes(tests),
            ]
        except ConfigError as error:
            raise pytest.UsageError(f"--sparkperf-config-ref: {error}") from None

    def server(self, spec: GateSpec) -> Server:
        """Return the running server of a gate, started or attached now if it is not up yet."""
        return self._open_bench().server(self.variants(spec)[SUBJECT])

    def warm_server(self, spec: GateSpec) -> Server:
        """Return the running server of a gate, steady at the default load."""
        server = self.server(spec)
        self._open_bench().warm(self.variants(spec)[SUBJECT])
        return server

    def measure(self, spec: GateSpec, test: str, *, gates: int | None = None) -> Result:
        """Measure a load on its server and judge the limits; ``gates`` shares the error of a FAIL.

        The stored runs are those of ``test``, or of the gate's own name.
        """
        gates, variants = gates or max(1, self._limits), self.variants(spec)
        if self._kept is None:
            return self._open_bench().measure(variants, spec, gates=gates, test=spec.name or test)
        digest = gate_digest(test, spec, variants, gates)
        # A test may measure the same twice, and means two measurements.
        self._asked[digest] = self._asked.get(digest, 0) + 1
        digest += f"-{self._asked[digest]}"
        found = self._kept.find(digest)
        if found is not None:
            return replace(found, notes=(*found.notes, KEPT))
        result = self._open_bench().measure(variants, spec, gates=gates, test=spec.name or test)
        if is_worth_keeping(result):
            self._kept.add(digest, test, result)
        return result

    def request(self, spec: GateSpec, body: Mapping[str, Any]) -> RequestResult:
        """Send one request and judge nothing."""
        return self._open_bench().request(self.variant(spec), body)

    def done(self, spec: GateSpec) -> None:
        """Note that a gate has run; its server is stopped when no later gate needs it."""
        if self._bench is not None:
            for variant in self.variants(spec).values():
                self._bench.done(variant)

    def log_dir(self) -> Path:
        """Return the folder for the logs of started servers, made when the first one starts."""
        if self._logs is None:
            assert self.make_folder is not None, "set by the fixture that measures"
            self._logs = self.make_folder("sparkperf")
        return self._logs

    def _open_bench(self) -> Bench:
        if self._bench is None:
            from pytest_sparkperf.adapters.readiness import Surroundings
            from pytest_sparkperf.experiment.bench import Bench
            from pytest_sparkperf.experiment.starter import Machine, Starter

            machine = Machine(lock_timeout_s=self.settings.lock_timeout_s)
            starter = Starter(self.log_dir, Surroundings(self.say), machine)
            self._bench = Bench(
                expected=tuple(self._variants),
                starter=starter,
                root=self.settings.rootdir,
                keeping=self._keeping(),
                max_resident=self.config.max_resident,
                stop_idle=not self.settings.keep_servers,
            )
        return self._bench

    @property
    def baselines(self) -> Files:
        """The stored runs that gates are judged by."""
        from pytest_sparkperf.adapters.store import FolderStore

        return self._baselines or FolderStore(self.settings.baseline_dir)

    def _keeping(self) -> Keeping:
        from pytest_sparkperf.adapters.gitref import head_commit
        from pytest_sparkperf.adapters.store import FolderStore
        from pytest_sparkperf.experiment.stored import Keeping

        folder = FolderStore(self.settings.baseline_dir)
        return Keeping(
            self.baselines,
            self.settings.missing_baseline,
            folder if self.settings.record else None,
            head_commit(self.settings.rootdir) if self.settings.record else None,
            self._facts_of_hooks,
            batch=self.settings.record_batch,
        )

    def _facts_of_hooks(self, variant: Variant, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Join the facts that hooks add; raises ConfigError for what a file cannot keep."""
        found: dict[str, Any] = {}
        for one in reversed(self.ask_facts(variant.target, facts)):
            if one is not None and not is_plain_mapping(one):
                raise ConfigError(
                    f"the hook pytest_sparkperf_fingerprint returned {one!r}; return a mapping of names to "
                    'texts, numbers, lists or mappings of these, such as {"bios": "1.2"}'
                )
            found |= one or {}
        return found

    @property
    def proven(self) -> int:
        """Gates that reached a verdict."""
        return sum(one.outcome in ("PASS", "FAIL", "ERROR") for one in self.seen)

    @property
    def unproven(self) -> int:
        """Gates that ended inconclusive."""
        return sum(one.outcome == "INCONCLUSIVE" for one in self.seen)

    def close(self) -> None:
        """Stop every server of this run, or leave them up where that was asked for; may be called twice.

        What could not be stopped is ``trouble``.
        """
        bench, self._bench = self._bench, None
        try:
            if bench is not None:
                bench.close(keep=self.settings.keep_servers)
        except SparkPerfError as error:
            self.trouble = str(error)


def _check_dataset(load: Load) -> None:
    if load.messages or load.tools or (load.dataset is not None and is_file(load.dataset)):
        from pytest_sparkperf.experiment.prompts import check_dataset

        check_dataset(load)


def _targets_of(source: str, words: Mapping[str, Any]) -> Mapping[str, Target]:
    try:
        return parse_targets(words)
    except ConfigError as error:
        raise pytest.UsageError(f"{source}: {error}") from None


class Listener:
    """Collects what gates said from their reports, in this process or in a worker of xdist."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._run.cells += (Cell(**cell) for cell in getattr(report, "sparkperf_cells", ()))
        said: Mapping[str, Any] | None = getattr(report, "sparkperf", None)
        if said is not None:
            self._run.seen.append(Seen(said["outcome"], tuple(said["lines"])))


RUN = pytest.StashKey[Run]()
