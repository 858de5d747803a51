"""How a simulated server is started: vLLM's flags, the simulator's own, and their checks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite, nan
from typing import NoReturn

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.sim.conditions import ConditionSettings, launch_factor
from pytest_sparkperf.sim.engine import EngineSettings
from pytest_sparkperf.sim.faults import FAULTS, Faults, parse_faults
from pytest_sparkperf.sim.profile import Profile, conditional
from pytest_sparkperf.sim.profiles import DEFAULT_PROFILE, PROFILES
from pytest_sparkperf.sim.vllm_flags import (
    SEVERAL_VALUES,
    TOGGLES,
    WITH_VALUE,
    add_ignored_options,
    whole_option,
)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding as ``--speculative-config`` names it."""

    method: str
    num_speculative_tokens: int


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything a simulated server is started with."""

    host: str
    port: int
    model: str
    served_names: tuple[str, ...]
    max_model_len: int
    profile: Profile
    engine: EngineSettings
    speculation: Speculation | None
    api_key: str | None
    prompt_details: bool
    automatic_tools: bool
    paced: bool
    time_scale: float
    faults: Faults
    ssl_files: tuple[str, str | None] | None  # certificate and key
    ignored_options: tuple[str, ...]
    emissions_file: str | None
    start_delay_s: float
    stats_interval_s: float


def parse_arguments(argv: Sequence[str], *, api_key: str | None = None) -> ServerSettings:
    """Return the settings of a command line; raise ConfigError on anything not known.

    Options may be written with underscores, as vLLM allows. ``api_key`` is the one of the environment.
    """
    parser = _parser()
    arguments, unknown = parser.parse_known_args([_dashed(argument) for argument in argv])
    if unknown:
        raise ConfigError(_unknown_text(unknown, parser))
    profile = _profile(arguments)
    speculation = _speculation(arguments.speculative_config)
    model = arguments.model_option or arguments.model_tag or profile.model
    return ServerSettings(
        host=arguments.host,
        port=arguments.port,
        model=model,
        served_names=tuple(arguments.served_model_name or (model,)),
        max_model_len=arguments.max_model_len or profile.max_model_len,
        profile=profile,
        engine=_engine_settings(arguments, profile, speculation),
        speculation=speculation,
        api_key=arguments.api_key or api_key,
        prompt_details=arguments.enable_prompt_tokens_details,
        automatic_tools=arguments.enable_auto_tool_choice,
        paced=not arguments.unpaced,
        time_scale=arguments.time_scale,
        faults=parse_faults(arguments.fault),
        ssl_files=(arguments.ssl_certfile, arguments.ssl_keyfile) if arguments.ssl_certfile else None,
        ignored_options=tuple(arguments.ignored),
        emissions_file=arguments.emissions,
        start_delay_s=arguments.start_delay_s,
        stats_interval_s=arguments.stats_interval_s,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}. See sparkperf sim --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sparkperf sim",
        description="Serve simulated vLLM answers at the speed of a described machine.",
        epilog=f"Accepted and ignored: {', '.join((*WITH_VALUE, *SEVERAL_VALUES, *TOGGLES))}.",
        allow_abbrev=False,
    )
    _add_vllm_options(parser.add_argument_group("vLLM's options, with vLLM's meaning"))
    _add_own_options(parser.add_argument_group("the simulator's own options"))
    add_ignored_options(parser)
    return parser


def _add_vllm_options(group: argparse._ArgumentGroup) -> None:
    toggle = argparse.BooleanOptionalAction
    group.add_argument("model_tag", nargs="?", metavar="MODEL", help="a name only, nothing is loaded")
    group.add_argument("--model", dest="model_option", metavar="MODEL", help="the same")
    group.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names requests may use")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    group.add_argument("--port", type=_port, default=8000, help="0 takes a free one (default: %(default)s)")
    group.add_argument("--max-num-seqs", type=_positive, metavar="N", help="most requests in one batch")
    group.add_argument("--max-num-batched-tokens", type=_positive, metavar="N", help="most tokens of a step")
    group.add_argument("--max-model-len", type=_positive, metavar="N", help="most tokens of one request")
    group.add_argument("--speculative-config", metavar="JSON", help="method and num_speculative_tokens")
    group.add_argument("--api-key", metavar="KEY", help="asked of /v1 requests (default: VLLM_API_KEY)")
    group.add_argument("--ssl-certfile", metavar="FILE", help="serve https with this certificate")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="its key, where the certificate's file lacks it")
    group.add_argument("--enable-prefix-caching", action=toggle, default=True, help="reuse known prompts")
    group.add_argument("--enable-prompt-tokens-details", action=toggle, default=False, help="cached_tokens")
    group.add_argument("--enable-auto-tool-choice", action=toggle, default=False, help="call tools")
    group.add_argument("--tool-call-parser", metavar="NAME", help="accepted")
    group.add_argument("--reasoning-parser", metavar="NAME", help="accepted; thinking is always parsed")


def _add_own_options(group: argparse._ArgumentGroup) -> None:
    names = ", ".join(PROFILES)
    group.add_argument("--profile", choices=PROFILES, default=DEFAULT_PROFILE, help=f"machine: {names}")
    group.add_argument("--slowdown", type=_factor, default=1.0, help="2.0: every step takes twice as long")
    group.add_argument("--unpaced", action="store_true", help="never wait: no speed of it means anything")
    group.add_argument(
        "--time-scale", type=_factor, default=1.0, help="10: ten of its seconds pass in one; clients are told"
    )
    group.add_argument(
        "--acceptance",
        type=_probability,
        action="append",
        metavar="SHARE",
        help="share of drafts accepted at the first position; repeat it for the next ones (default: profile)",
    )
    group.add_argument("--seed", type=int, help="of noise and acceptance (default: 0), and of --launch-sd")
    group.add_argument("--noise", type=_share, default=0.005, help="relative sd of a step (default: 0.005)")
    group.add_argument(
        "--outliers", type=_share, default=0.0, help="share of steps that take 8 times as long"
    )
    group.add_argument("--heat", type=_share, default=0.0, help="how much slower it is when hot: 0.06")
    group.add_argument("--heat-s", type=_interval, default=300.0, help="time constant of heat (default: 300)")
    group.add_argument("--launch-sd", type=_share, default=0.0, help="relative sd from start to start")
    group.add_argument("--jit-s", type=_seconds, help="compile time of a new shape; 0: none")
    group.add_argument("--emissions", metavar="FILE", help="append the emission times of each request")
    group.add_argument("--start-delay-s", type=_seconds, default=0.0, help="seconds before it listens")
    group.add_argument("--stats-interval-s", type=_interval, default=10.0, help="between lines of figures")
    faults = "; ".join(f"{name}: {spec.text}" for name, spec in FAULTS.items())
    group.add_argument(
        "--fault", action="append", default=[], metavar="NAME[=N]", help=f"repeatable. {faults}"
    )


def _engine_settings(
    arguments: argparse.Namespace, profile: Profile, speculation: Speculation | None
) -> EngineSettings:
    return EngineSettings(
        draft_tokens=speculation.num_speculative_tokens if speculation else 0,
        max_num_seqs=arguments.max_num_seqs or profile.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens or profile.max_num_batched_tokens,
        prefix_caching=arguments.enable_prefix_caching,
        slowdown=arguments.slowdown,
        jit_s=profile.jit_s if arguments.jit_s is None else arguments.jit_s,
        seed=arguments.seed or 0,
        conditions=ConditionSettings(
            noise=arguments.noise,
            outliers=arguments.outliers,
            heat=arguments.heat,
            heat_s=arguments.heat_s,
            launch_factor=launch_factor(arguments.launch_sd, arguments.seed),
            seed=arguments.seed or 0,
        ),
    )


def _profile(arguments: argparse.Namespace) -> Profile:
    """Return the machine asked for, with the acceptance of the text that it will be asked to write."""
    profile, accepted = PROFILES[arguments.profile], arguments.acceptance
    if not accepted:
        return profile
    if any(after > before for before, after in pairwise(accepted)):
        told = " ".join(f"{share:g}" for share in accepted)
        raise ConfigError(
            f"--acceptance {told!r} grows from one position to the next, but a draft counts as accepted only "
            "where all before it were; give the shares that vLLM logs as per-position acceptance."
        )
    return replace(profile, acceptance=conditional(accepted), acceptance_by_k=())


def _speculation(text: str | None) -> Speculation | None:
    if text is None:
        return None
    valid = 'Write for example \'{"method": "mtp", "num_speculative_tokens": 3}\'.'
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--speculative-config {text!r} is not JSON: {error}. {valid}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"--speculative-config {text!r} is not a JSON object. {valid}")
    tokens, method = document.get("num_speculative_tokens"), document.get("method")
    if not isinstance(method, str) or type(tokens) is not int or not 1 <= tokens <= 16:
        raise ConfigError(
            f"--speculative-config {text!r} needs a method and num_speculative_tokens from 1 to 16. {valid}"
        )
    return Speculation(method, tokens)


def _unknown_text(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    told = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    options = (option for action in told for option in action.option_strings)
    valid = ", ".join(sorted(option for option in options if option.startswith("--")))
    more = "Options of vLLM's that it accepts and ignores are listed by sparkperf sim --help."
    return f"The simulator does not know {' '.join(unknown)!r}. Valid options: {valid}. {more}"


def _dashed(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return whole_option(name.replace("_", "-")) + equals + value


def _port(text: str) -> int:
    return int(
        _number(text, "a port from 0 to 65535", lambda value: value.is_integer() and 0 <= value <= 65535)
    )


def _positive(text: str) -> int:
    return int(_number(text, "a whole number of at least 1", lambda value: value.is_integer() and value >= 1))


def _factor(text: str) -> float:
    return _number(text, "a factor above 0", lambda value: value > 0)


def _probability(text: str) -> float:
    return _number(text, "a share above 0, up to 1", lambda value: 0 < value <= 1)


def _share(text: str) -> float:
    return _number(text, "a share from 0 to 0.2", lambda value: 0 <= value <= 0.2)


def _seconds(text: str) -> float:
    return _number(text, "seconds of at least 0", lambda value: value >= 0)


def _interval(text: str) -> float:
    return _number(text, "seconds of at least 0.1", lambda value: value >= 0.1)


def _number(text: str, valid: str, accepts: Callable[[float], bool]) -> float:
    """Return the number an option's text stands for; argparse puts the option's name before the refusal."""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value) or not accepts(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {valid}")
    return value
