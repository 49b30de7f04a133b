"""Each error of a profile is one line, with the file and the line of the key that is wrong."""

from pathlib import Path

import pytest

from marin_core.errors import MarinError
from marin_core.evals.config import EvalsConfig, HarnessTask
from marin_core.profile import HubTarget, load_profile
from marin_core.recipes import HeldOutRun, TokenLaw
from tests.profile.conftest import ON_A_CLUSTER, WHOLE, line_of, replaced


def refused(file: Path) -> str:
    """The message, without the file's folder."""
    with pytest.raises(MarinError) as error:
        load_profile(str(file))
    message = str(error.value)
    assert "\n" not in message
    return message.replace(f"{file.parent}/", "")


def check(tmp_path: Path, text: str, key: str, message: str) -> None:
    """The profile is refused at the line that starts with `key`, with a text that starts with `message`."""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert refused(file).startswith(f"profile mine.toml, line {line_of(text, key)}: {message}")


def test_the_profiles_to_get_wrong_are_right(tmp_path: Path) -> None:
    for text in (WHOLE, ON_A_CLUSTER):
        (tmp_path / "mine.toml").write_text(text)
        assert load_profile(str(tmp_path / "mine.toml")).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("eval_seq", "eval_sequnces", "eval_sequncesuences", "unknown field 'eval_sequncesuences'; there are recipe, "),
        ("eval_sequences = 16", "eval_sequences = 1.5", "eval", "field 'eval_sequences' is 1.5; give an integer"),
        ("eval_sequences = 16", "eval_sequences = 0", "eval", "eval_sequences is 0; give at least 1"),
        ("eval_sequences = 16", "", "[scale]", "field 'eval_sequences' is missing; give an integer"),
        ("= 0.04", "= 1", "validation_share", "validation_share is 1; give a share between 0 and 1"),
        ("[1e11, 2e11, 4e11]", "[]", "fit_budgets", "fit_budgets is empty; give at least one budget in FLOPs"),
        ("[1e11, 2e11, 4e11]", "1e11", "fit_budgets", "field 'fit_budgets' is 100000000000.0; give a list of numbers"),
        ("[1e11, 2e11, 4e11]", "[\n1e11,\n-2e11]", "-2e11", "fit_budgets has -200000000000.0; give positive numbers"),
        ("[1e11, 2e11, 4e11]", "[1e11, 2e11, 1e11]", "fit_budgets", "fit_budgets has 1e11 twice; give every budget o"),
        ("[1.6e12]", "[1.6e12, 16e11]", "heldout_budgets", "heldout_budgets has 1.6e12 twice; give every budget once"),
        ("1.6e12", "inf", "heldout_budgets", "heldout_budgets has inf; give positive numbers"),
        ("[1.6e12]", "[]", "heldout_budgets", "heldout_budgets is empty; give at least one budget in FLOPs"),
        (
            "eval_sequences = 16",
            "eval_sequences = 16\nevals = { tasks = { mmlu = { few_shots = 5 } } }",
            "evals",
            "unknown field 'few_shots'; there are name, ",
        ),
        (
            "eval_sequences = 16",
            "eval_sequences = 16\nevals = { tasks = [] }",
            "evals",
            "field 'tasks' is not a table; give one, [scale.evals.tasks.NAME], for each task",
        ),
        (
            "[place]",
            "[scale.evals.tasks.perplexity]\n[place]",
            "[scale.evals.tasks.perplexity]",
            "the task's name is 'perplexity', which every run is scored by anyway; leave the task out",
        ),
        *(
            (
                "[place]",
                f'[scale.evals.tasks."{name}"]\n[place]',
                "[scale.evals.tasks.",
                f"the task's name is '{name}'; give letters, digits, _ and -, in parts with / between them",
            )
            for name in ("a b", "mmlu,pile", "mmlu/", "../mmlu", "größe", "")
        ),
        (
            "[place]",
            "[scale.evals.tasks.mmlu]\nname = 'mmlu?'\n[place]",
            "name = 'mmlu",
            "the task's name is 'mmlu?'; give ",
        ),
        (
            "[place]",
            "[scale.evals.tasks]\nwmt_en = {}\nwmt-en = {}\n[place]",
            "wmt-en",
            "to Dagster tasks 'wmt_en' and 'wmt-en' have one name; leave one of them out",
        ),
        (
            "eval_sequences = 16",
            'eval_sequences = 16\nframing = "l"',
            "framing",
            "field 'framing' is 'l'; give one of ",
        ),
        ('base = "nano"', 'base = "pythia"', "base", "unknown recipe 'pythia'; there are delphi, nano"),
        ('base = "nano"', "", "[scale.recipe]", "field 'base' is missing; give the recipe to start from: delphi, nano"),
        ('base = "nano"', 'base = "nano"\nseq_len = 8', "[scale.recipe]", "a fork of recipe 'nano' needs a name and a"),
        (
            'base = "nano"',
            'base = "nano"\nname = "mine"\nversion = "v1"\nseq_len = "8"',
            "seq_len",
            "field 'seq_len' is '8'; give an integer",
        ),
        (
            'base = "nano"',
            'base = "nano"\nname = "mine"\nversion = "v1"\nhparams.beta3 = 1',
            "hparams.beta3",
            "unknown field 'beta3'; there are reference_batch_size, ",
        ),
        (
            'base = "nano"',
            'base = "nano"\nname = "mine"\nversion = "v1"\n[scale.recipe.hparams]\nrule = "lab.rules:Mine"',
            "rule",
            "hyperparameter rule 'lab.rules:Mine' cannot be imported (No module named 'lab'); put its folder on PYTHON",
        ),
        (
            'base = "nano"',
            'base = "nano"\nname = "mine"\nversion = "v1"\n[scale.recipe.hparams]\nrule = "fractions:Fraction"',
            "rule",
            "hyperparameter rule 'fractions:Fraction' is no subclass of CompletedAdamHParams",
        ),
        (
            'base = "nano"',
            'base = "nano"\nname = "mine"\nversion = "v1"\n[scale.recipe.hparams]\n'
            'reference_width = "512"\nrule = "marin_core.recipes.hparams:WidthScaledAdamHParams"',
            "reference_width",
            "field 'reference_width' is '512'; give an integer",
        ),
        ("code = {", "poems = {", "poems", "source 'poems': field 'content' is missing"),
        ("max_bytes = 20_000", "max_byte = 3", "code = {", "source 'code': unknown field 'max_byte'; there are "),
        (
            "language_reference = {}",
            "[scale.sources.language_reference]\nlicence = 'CC0'\nmax_bytes = 0",
            "max_bytes",
            "source 'language_reference': field 'max_bytes' is 0; give a positive number",
        ),
        ("sample_bytes = 10_000", "", "[scale.tokenizer]", "a tokenizer needs sample_bytes (to train one), or a rep"),
        (
            "sample_bytes = 10_000",
            "sample_byte = 1",
            "sample_byte ",
            "unknown field 'sample_byte'; there are name, voc",
        ),
        ("block_size = 256", "blocksize = 256", "blocksize", "unknown field 'blocksize'; there are name, block_size, "),
        ("block_size = 256", "", "[scale.mixture]", "field 'block_size' is missing; give an integer"),
        ("code = 1.0", 'code = "1.0"', 'code = "', "field 'code' is '1.0'; give a number"),
        ("code = 1.0", "code = -1.0", "code = -", "mixture weights must be positive: code=-1.0"),
        ("code = 1.0", "prose = 1.0", "prose", "the mixture weighs the undeclared source 'prose'; declared are code, "),
        (
            "code = 1.0",
            "language_reference = 1.0",
            "language_reference = 1",
            "the mixture weighs 'language_reference', ",
        ),
    ],
)
def test_what_is_wrong_in_the_scale_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    check(tmp_path, replaced(WHOLE, old, new), key, message)


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("suite_pool", "suite_pools", "suite_pools", "unknown field 'suite_pools'; there are store, data_pool, suite_"),
        ('suite_pool = "cpu-1"', "", "[place]", "field 'suite_pool' is missing; give a pool such as cpu-4"),
        ('suite_pool = "cpu-1"', "suite_pool = 1", "suite_pool", "suite_pool is 1; give a pool such as 'cpu-4', or"),
        ('suite_pool = "cpu-1"', 'suite_pool = "gpu-1"', "suite_pool", "unknown pool 'gpu-1'"),
        ('suite_pool = "cpu-1"', 'suite_pool = ["cpu-1", "cpu-2"]', "suite_pool", "pools cpu-1 (1 × 1 × 1 cores) and "),
        (
            'suite_pool = "cpu-1"',
            'suite_pool = "h100-8"',
            "suite_pool",
            "suite_pool is h100-8, but jobs are processes on",
        ),
        (
            'suite_pool = "cpu-1"',
            'suite_pool = "2xcpu-1"',
            "suite_pool",
            "suite_pool is 2xcpu-1, but jobs are processes",
        ),
        ("seconds = 20", 'seconds = "20"', "checkpoint", "field 'checkpoint_every_seconds' is '20'; give a number"),
        ("seconds = 20", "seconds = 0", "checkpoint", "checkpoint_every_seconds is 0; give a positive number"),
        ("seconds = 20", "seconds = 20\ndata_ranks = 0", "data_ranks", "data_ranks is 0; give at least 1"),
        (
            "seconds = 20",
            "seconds = 20\ndata_ranks = true",
            "data_ranks",
            "field 'data_ranks' is True; give an integer",
        ),
        ("seconds = 20", "seconds = 20\nmax_failures = -1", "max_failures", "max_failures is -1; give at least 0"),
        ("seconds = 20", "seconds = 20\nmax_preemptions = -1", "max_pre", "max_preemptions is -1; give at least 0"),
        ("seconds = 20", "seconds = 20\nmax_flops = -1e18", "max_flops", "max_flops is -1e+18; give a positive number"),
        (
            "seconds = 20",
            "seconds = 20\nassumed_mfu = 40",
            "assumed_mfu",
            "assumed_mfu is 40; give a share of the peak",
        ),
        ("seconds = 20", "seconds = 20\nprices = { tpu = 1 }", "prices", "unknown field 'tpu'; there are a100-40gb, "),
        ("seconds = 20", "seconds = 20\nprices.v4 = '1'", "prices.v4", "field 'v4' is '1'; give a number"),
        (
            "seconds = 20",
            "seconds = 20\nprices.v4 = -1",
            "prices.v4",
            "the price of v4 is -1; give US dollars per chip",
        ),
        ("seconds = 20", "seconds = 20\nstore = 3", "store", "store is 3; give a folder, or a URL such as gs://"),
        ("[place]", "[palce]\nx = 1\n[place]", "[palce]", "unknown section 'palce'; there are scale and place"),
    ],
)
def test_what_is_wrong_in_the_place_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    check(tmp_path, replaced(WHOLE, old, new), key, message)


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("namespace", "namespaces", "namespaces", "unknown field 'namespaces'; there are namespace, image, region"),
        ('namespace = "lab"', "", "[place.kubernetes]", "field 'namespace' is missing; give a string"),
        ('"lab"', '"The_Lab"', "namespace", "namespace is 'The_Lab'; give a name of up to 63 lower case letters"),
        ('image = "registry/lab:1"', "", "[place.kubernetes]", "jobs on a cluster need an image; set MARIN_IMAGE, or"),
        ('store = "gs://bucket/lab"', "", "[place]", "jobs on a cluster need a store that its pods reach; set MARIN_S"),
        ('"gs://bucket/lab"', '"/data/lab"', "store", "the store is the folder /data/lab, which pods of a cluster can"),
        (
            '"us-east5"\n\n',
            '"us-west1"\n\n',
            "bucket_region",
            "bucket_region is us-west1, but the pools are in us-east5",
        ),
        (
            '\nregion = "us-east5"',
            '\nregion = "us-east5-a"',
            "region",
            "region is the zone 'us-east5-a'; give its region,",
        ),
        (
            '\nregion = "us',
            '\nenv_from_secret = "KEY=0123"\nregion = "us',
            "env_from_secret",
            "env_from_secret is 'KEY=0123'; give a name of",
        ),
        ('SECOND = "2"', "SECOND = 2", "env", "field 'SECOND' is 2; give a string"),
        ('SECOND = "2"', '"2ND" = "2"', "env", "'2ND' is not the name of an environment variable"),
        (
            '\nregion = "us',
            '\non_cancel = "stop"\nregion = "us',
            "on_cancel",
            "field 'on_cancel' is 'stop'; give one of ",
        ),
        ('\nregion = "us', '\nspot = "no"\nregion = "us', "spot", "field 'spot' is 'no'; give true or false"),
        (
            '\nregion = "us',
            '\nworker_command = "python -m lab"\nregion = "us',
            "worker_command",
            "field 'worker_command' is 'python -m lab'; give a list of strings",
        ),
        (
            '\nregion = "us',
            '\nworker_command = []\nregion = "us',
            "worker_command",
            "worker_command is empty; give the",
        ),
        ('\nregion = "us', '\nscratch = "tmp"\nregion = "us', "scratch", "scratch is 'tmp'; give an absolute path"),
        ('\nregion = "us', '\nmax_run_hours = 0\nregion = "us', "max_run_hours", "max_run_hours is 0; give a positive"),
        (
            '\nregion = "us',
            '\ntermination_grace_seconds = -1\nregion = "us',
            "termination_grace_seconds",
            "termination_grace_seconds is -1; give at least 1",
        ),
        (
            'data_pool = "cpu-1"',
            'data_pool = "v5p-8"',
            "data_pool",
            "data_pool is v5p-8, but a data stage runs on the co",
        ),
        (
            'data_pool = "cpu-1"',
            'data_pool = "2xcpu-4"',
            "data_pool",
            "data_pool is 2xcpu-4, but a data stage runs on the",
        ),
        ('suite_pool = "cpu-1"', 'suite_pool = "v5p-12"', "suite_pool", "unknown pool 'v5p-12'; did you mean v5p-"),
        (
            'suite_pool = "cpu-1"',
            'suite_pool = "v5p-16"',
            "suite_pool",
            "evaluations run in one process, and v5p-16 has 2; give a pool of one host in eval_pool",
        ),
        (
            'heldout_pool = "cpu-1"',
            'heldout_pool = { large = "cpu-1" }',
            "heldout_pool",
            "the budget is 'large'; give a positive number of FLOPs, like 1e21",
        ),
        (
            'heldout_pool = "cpu-1"',
            'heldout_pool = { 1.6e12 = "cpu-1" }',
            "heldout_pool",
            "to TOML 1.6e12 is key '6e12' in a table '1'; put the budget in quotes, \"1.6e12\"",
        ),
        (
            'heldout_pool = "cpu-1"',
            'heldout_pool = { 1e21 = "cpu-1" }',
            "heldout_pool",
            "heldout_pool has pools for 1e21 FLOPs, none for 1.6e12; add one in [place]",
        ),
    ],
)
def test_what_is_wrong_with_a_cluster_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, key: str, message: str
) -> None:
    check(tmp_path, replaced(ON_A_CLUSTER, old, new), key, message)


@pytest.mark.parametrize("typo", ["heldout_budgetss", "validation_shares"])
def test_a_misspelt_key_is_told_the_right_one(tmp_path: Path, typo: str) -> None:
    (tmp_path / "mine.toml").write_text(replaced(WHOLE, typo[:-1], typo))
    assert refused(tmp_path / "mine.toml").endswith(f"; did you mean {typo[:-1]!r}?")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[place]", "[[place]]", "profile mine.toml, line 26: section 'place' is not a table; write [place]"),
        ("[scale.recipe]", "[[scale.recipe]]", "profile mine.toml, line 7: field 'recipe' is not a table; give one"),
        ("validation_share = 0.04", "validation_share = ", "profile mine.toml, line 4: not valid TOML: Invalid value"),
        (
            "validation_share = 0.04",
            "heldout_budgets = [1]",
            "profile mine.toml, line 4: not valid TOML: Cannot overwrite",
        ),
        ("sample_bytes = 10_000", 'sample = """', "profile mine.toml: not valid TOML: Unterminated string (at end of"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(replaced(WHOLE, old, new))
    assert refused(tmp_path / "mine.toml").startswith(message)


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(WHOLE.split("[place]")[0])
    assert refused(tmp_path / "mine.toml").startswith("profile mine.toml: section 'place' is missing")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    assert refused(tmp_path / "mine.toml").startswith("profile mine.toml cannot be read: 'utf-8' codec")


def test_the_environment_replaces_store_and_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(ON_A_CLUSTER)
    monkeypatch.setenv("MARIN_STORE", "gs://other/lab")
    monkeypatch.setenv("MARIN_IMAGE", "other:2")
    place = load_profile(str(tmp_path / "mine.toml")).place
    assert place.kubernetes is not None
    assert (place.store, place.kubernetes.image) == ("gs://other/lab", "other:2")


HUB = 'hub = { namespace = "lab", tag = "v1" }\n'


@pytest.mark.parametrize(
    "tag", ["", "main", "a/b", "v1..2", "-v1", "v 1", "v1.", "v1.lock", "ä", "artifact-0123456789abcdef"]
)
def test_what_can_be_no_tag_is_refused(tmp_path: Path, tag: str) -> None:
    text = WHOLE + HUB.replace("v1", tag)
    (tmp_path / "mine.toml").write_text(text)
    line = line_of(text, "hub")
    assert refused(tmp_path / "mine.toml").startswith(f"profile mine.toml, line {line}: tag is {tag!r}; give ")


@pytest.mark.parametrize(
    ("hub", "environment", "endpoint"),
    [
        ("", None, None),
        ("", "https://hub.example/", "https://hub.example"),
        (HUB, "https://hub.example", "https://hub.example"),
        (HUB.replace("}", ', endpoint = "https://own.example" }'), None, "https://own.example"),
        (HUB.replace("}", ', endpoint = "https://own.example" }'), "https://hub.example", "https://hub.example"),
        (HUB.replace("}", ', endpoint = "https://own.example" }'), "https://huggingface.co", None),
    ],
)
def test_a_publication_says_which_hub_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: str, environment: str | None, endpoint: str | None
) -> None:
    (tmp_path / "mine.toml").write_text(WHOLE + hub)
    monkeypatch.setenv("HF_ENDPOINT", environment or "")
    assert load_profile(str(tmp_path / "mine.toml")).place.hub.endpoint == endpoint


def test_the_hub_of_the_pods_is_that_of_publications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(replaced(ON_A_CLUSTER, "FIRST", "HF_ENDPOINT").replace('"1"', '"http://hub"'))
    monkeypatch.setenv("HF_ENDPOINT", "")
    assert load_profile(str(tmp_path / "mine.toml")).place.hub.endpoint == "http://hub"


def test_a_hub_that_is_no_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(WHOLE)
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    assert "HF_ENDPOINT is 'hub.example'; set it to the URL of a hub" in refused(tmp_path / "mine.toml")


def test_a_folder_in_the_environment_is_no_store_for_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(ON_A_CLUSTER)
    monkeypatch.setenv("MARIN_STORE", str(tmp_path))
    line = line_of(ON_A_CLUSTER, "[place]")
    assert refused(tmp_path / "mine.toml").startswith(f"profile mine.toml, line {line}: the store is the folder ")


def test_a_bucket_in_a_multi_region_around_the_cluster_is_right(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(replaced(ON_A_CLUSTER, '"us-east5"\n\n', '"us"\n\n'))
    assert load_profile(str(tmp_path / "mine.toml")).place.bucket_region == "us"


def test_pools_are_known_by_their_proper_names(tmp_path: Path) -> None:
    text = replaced(ON_A_CLUSTER, 'suite_pool = "cpu-1"', 'suite_pool = ["v5e-16", "v5litepod-16"]')
    text = replaced(text, 'heldout_pool = "cpu-1"', 'heldout_pool = "4 × v6e-256"\neval_pool = "cpu-1"')
    (tmp_path / "mine.toml").write_text(text)
    place = load_profile(str(tmp_path / "mine.toml")).place
    assert place.suite_pools == ("v5litepod-16", "v5litepod-16")
    assert place.heldout_pools == {None: ("4xv6e-256",)}


EVERYTHING = (
    replaced(
        ON_A_CLUSTER,
        'base = "nano"\n',
        'base = "nano"\nname = "mine"\nversion = "v1"\nseq_len = 64\nmax_params = 1e6\n'
        "token_law = { coefficient = 0.1, exponent = 0.5 }\n"
        "heldout_runs = { 1e11 = { batch_size = 4, seeds = [3, 5] } }\n"
        '[scale.recipe.hparams]\nreference_beta2 = 0.9\nrule = "marin_core.recipes.hparams:CompletedAdamHParams"\n',
    ).replace(
        "[place]\n",
        "[scale.near_duplicates]\nbands = 20\nmin_containment = 0.5\n\n"
        '[scale.evals]\nmax_bytes = 1000\n[scale.evals.tasks.arc_easy]\nfew_shot = 3\nmetric = "acc"\n\n'
        '[place]\ndata_ranks = 2\neval_pool = "cpu-1"\ntracking = "online"\nwandb_project = "lab"\n'
        'hub = { namespace = "lab", tag = "v1" }\n',
    )
    + 'worker_command = ["python"]\nenv_from_secret = "wandb"\non_cancel = "leave"\nspot = true\n'
    + 'queue = "tpu"\nmax_run_hours = 3\n'
)
PAIRS = [number for number, line in enumerate(EVERYTHING.splitlines()) if " = " in line]


@pytest.mark.parametrize("number", PAIRS, ids=lambda number: EVERYTHING.splitlines()[number].split(" = ")[0])
def test_no_value_of_any_key_ends_in_anything_but_a_profile_or_one_line(tmp_path: Path, number: int) -> None:
    file = tmp_path / "mine.toml"
    for value in ("1", "-1.5", "nan", "true", '""', '"x"', "[]", "[1]", "[{}]", "{}", "{ x = {} }", "1979-05-27"):
        lines = EVERYTHING.splitlines()
        lines[number] = f"{lines[number].split(' = ')[0]} = {value}"
        file.write_text("\n".join(lines))
        try:
            load_profile(str(file))
        except MarinError as error:
            assert str(error).startswith(f"profile {file}, line "), value
            assert "\n" not in str(error), value


def test_everything_together_is_right(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EVERYTHING)
    profile = load_profile(str(tmp_path / "mine.toml"))
    assert profile.scale.evals == EvalsConfig(1000, (HarnessTask("arc_easy", few_shot=3, metric="acc"),))
    assert profile.place.hub == HubTarget("lab", tag="v1")
    recipe = profile.scale.recipe
    assert recipe.token_law == TokenLaw(0.1, 0.5)
    assert recipe.heldout_runs == {1e11: HeldOutRun(batch_size=4, seeds=(3, 5))}
