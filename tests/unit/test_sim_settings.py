from __future__ import annotations

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.sim.faults import Faults
from pytest_sparkperf.sim.settings import Speculation, parse_arguments

MTP = '{"method": "mtp", "num_speculative_tokens": 3, "moe_backend": "triton"}'


def test_defaults_are_the_profiles() -> None:
    settings = parse_arguments([])

    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.model == "nvidia/Qwen3.6-35B-A3B-NVFP4"
    assert settings.served_names == ("nvidia/Qwen3.6-35B-A3B-NVFP4",)
    assert (settings.max_model_len, settings.engine.max_num_seqs) == (262_144, 32)
    assert settings.engine.prefix_caching
    assert settings.speculation is None
    assert settings.engine.draft_tokens == 0
    assert settings.faults == Faults()


def test_vllms_flags_are_understood() -> None:
    settings = parse_arguments(
        [
            "some/model",
            "--served-model-name",
            "a",
            "b",
            "--host",
            "::1",
            "--port",
            "0",
            "--max-num-seqs",
            "4",
            "--max-model-len=2048",
            "--speculative-config",
            MTP,
            "--api-key",
            "secret",
            "--reasoning-parser",
            "qwen3",
            "--no-enable-prefix-caching",
            "--max-num-batched-tokens",
            "512",
            "--enable-prompt-tokens-details",
        ]
    )

    assert (settings.model, settings.served_names) == ("some/model", ("a", "b"))
    assert (settings.host, settings.port, settings.api_key) == ("::1", 0, "secret")
    assert settings.speculation == Speculation("mtp", 3)
    assert (settings.engine.draft_tokens, settings.engine.max_num_seqs) == (3, 4)
    assert (settings.max_model_len, settings.engine.max_num_batched_tokens) == (2048, 512)
    assert not settings.engine.prefix_caching
    assert settings.prompt_details


def test_the_model_may_be_an_option_and_options_may_have_underscores() -> None:
    settings = parse_arguments(["--model", "m", "--max_num_seqs=7", "--served_model_name", "x_y"])

    assert (settings.model, settings.engine.max_num_seqs, settings.served_names) == ("m", 7, ("x_y",))


def test_own_flags_are_understood() -> None:
    settings = parse_arguments(
        [
            "--slowdown",
            "2",
            "--seed",
            "9",
            "--noise",
            "0",
            "--jit-s",
            "0",
            "--fault",
            "lumps",
            "--fault",
            "no_usage",
            "--emissions",
            "file",
            "--start-delay-s",
            "1.5",
            "--profile",
            "gb10-nvfp4",
        ]
    )

    assert (settings.engine.slowdown, settings.engine.seed) == (2.0, 9)
    assert (settings.engine.conditions.noise, settings.engine.jit_s) == (0.0, 0.0)
    assert settings.faults == Faults(lumps=True, no_usage=True)
    assert (settings.emissions_file, settings.start_delay_s) == ("file", 1.5)


def test_options_of_a_real_target_are_accepted_and_named() -> None:
    settings = parse_arguments(
        [
            *("some/model", "--quantization", "modelopt", "--moe_backend=marlin", "--dtype", "auto"),
            *("--gpu-memory-utilization", "0.35", "--kv-cache-memory-bytes", "4294967296"),
            *("--trust-remote-code", "--no-async-scheduling", "--compilation-config.mode", "3"),
            *("--cudagraph-capture-sizes", "1", "2", "--max-num-seqs", "4"),
        ]
    )

    assert settings.model == "some/model"
    assert settings.engine.max_num_seqs == 4
    assert settings.ignored_options == (
        *("--quantization", "--moe-backend", "--dtype", "--gpu-memory-utilization"),
        *("--kv-cache-memory-bytes", "--trust-remote-code", "--no-async-scheduling"),
        *("--compilation-config", "--cudagraph-capture-sizes"),
    )
    assert parse_arguments([]).ignored_options == ()


def test_a_seed_fixes_the_luck_of_a_start() -> None:
    def factor(*argv: str) -> float:
        return parse_arguments(["--launch-sd", "0.05", *argv]).engine.conditions.launch_factor

    assert factor("--seed", "7") == factor("--seed", "7") != factor("--seed", "8")
    assert factor() != factor()
    assert parse_arguments([]).engine.conditions.launch_factor == 1.0


def test_it_is_paced_unless_told_otherwise() -> None:
    assert parse_arguments([]).paced
    assert not parse_arguments(["--unpaced"]).paced


def test_the_key_of_the_environment_is_used_unless_a_flag_gives_one() -> None:
    assert parse_arguments([], api_key="env").api_key == "env"
    assert parse_arguments(["--api-key", "flag"], api_key="env").api_key == "flag"


EXAMPLE = 'Write for example \'{"method": "mtp", "num_speculative_tokens": 3}\'.'


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--quantisation", "modelopt"],
            (
                "The simulator does not know '--quantisation'. Valid options: --acceptance, --api-key, "
                "--emissions, --enable-auto-tool-choice, --enable-prefix-caching, "
                "--enable-prompt-tokens-details, --fault, --heat, --heat-s, --help, --host, --jit-s, "
                "--launch-sd, --max-model-len, --max-num-batched-tokens, --max-num-seqs, --model, "
                "--no-enable-auto-tool-choice, --no-enable-prefix-caching, "
                "--no-enable-prompt-tokens-details, --noise, --outliers, --port, --profile, "
                "--reasoning-parser, --seed, --served-model-name, --slowdown, --speculative-config, "
                "--ssl-certfile, --ssl-keyfile, --start-delay-s, --stats-interval-s, --time-scale, "
                "--tool-call-parser, --unpaced. Options of vLLM's that it accepts and ignores are listed by "
                "sparkperf sim --help."
            ),
        ),
        (
            ["--port", "70000"],
            "Argument --port: '70000' is not a port from 0 to 65535. See sparkperf sim --help.",
        ),
        (
            ["--slowdown", "0"],
            "Argument --slowdown: '0' is not a factor above 0. See sparkperf sim --help.",
        ),
        (
            ["--max-num-seqs", "1.5"],
            "Argument --max-num-seqs: '1.5' is not a whole number of at least 1. See sparkperf sim --help.",
        ),
        (
            ["--noise", "nan"],
            "Argument --noise: 'nan' is not a share from 0 to 0.2. See sparkperf sim --help.",
        ),
        (
            ["--jit-s", "long"],
            "Argument --jit-s: 'long' is not seconds of at least 0. See sparkperf sim --help.",
        ),
        (["--port"], "Argument --port: expected one argument. See sparkperf sim --help."),
        (
            ["--speculative-config", "mtp"],
            "--speculative-config 'mtp' is not JSON: Expecting value: line 1 column 1 (char 0). " + EXAMPLE,
        ),
        (["--speculative-config", "3"], "--speculative-config '3' is not a JSON object. " + EXAMPLE),
        (
            ["--speculative-config", '{"method": "mtp"}'],
            '--speculative-config \'{"method": "mtp"}\' needs a method and num_speculative_tokens '
            "from 1 to 16. " + EXAMPLE,
        ),
    ],
)
def test_refuses(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(argv)

    assert str(caught.value) == message


def test_refuses_an_unknown_profile_and_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^Argument --profile: invalid choice: 'h200' \(choose from '?gb10-nvfp4'?, "
    ):
        parse_arguments(["--profile", "h200"])


def test_acceptance_is_given_by_position_as_vllm_logs_it() -> None:
    profile = parse_arguments(
        ["--profile", "gb10-fast", "--acceptance", "0.9", "--acceptance", "0.45"]
    ).profile

    assert profile.accepted_given(1) == profile.accepted_given(3) == pytest.approx((0.9, 0.5))


def test_acceptance_that_grows_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(["--acceptance", "0.5", "--acceptance", "0.9"])

    assert str(caught.value) == (
        "--acceptance '0.5 0.9' grows from one position to the next, but a draft counts as accepted only "
        "where all before it were; give the shares that vLLM logs as per-position acceptance."
    )


def test_acceptance_that_is_no_share_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(["--acceptance", "85"])

    assert str(caught.value) == (
        "Argument --acceptance: '85' is not a share above 0, up to 1. See sparkperf sim --help."
    )
