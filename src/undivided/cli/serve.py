"""`undivided serve`: a translation server."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from undivided.cli.options import add_compute, add_quiet
from undivided.config.flags import add_settings, given_settings
from undivided.config.serve import PREFIX, ServeConfig, environment_settings
from undivided.config.settings import build_config, list_faults
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.signals import Stopped


def add_serve(verbs: Any) -> None:
    """`undivided serve`."""
    verb = verbs.add_parser(
        "serve",
        help="a translation server that clients of LibreTranslate already speak to, with a page",
        description="Serve models over HTTP: LibreTranslate's API, parts of DeepL's and OpenAI's, our own, and a page "
        "(docs/serving.md). Settings that LibreTranslate has too are also read from its variables, such as LT_PORT.",
    )
    verb.add_argument(
        "models", nargs="*", metavar="MODEL", help="model folders; en-de=FOLDER where a folder does not say its languages"
    )
    verb.add_argument("--new-key", metavar="NAME", help="add an API key to --api-keys-db-path, print it, and end")
    add_settings(verb, ServeConfig)
    add_compute(verb, "auto")
    add_quiet(verb)
    verb.set_defaults(run=run_serve)


def serve_config(options: argparse.Namespace, console: Console) -> ServeConfig:
    """The settings: flags over variables over defaults."""
    given, unknown = environment_settings()
    for name in unknown:
        console.warn(f"{name} has no effect here")
    faults: list[str] = []
    flags = given_settings(options, ServeConfig)
    config: ServeConfig = build_config(ServeConfig, given | flags, "", faults)
    if faults:
        faults = [f"{PREFIX}{each.upper()}: {fault}" if (each := fault.partition(":")[0]) in given.keys() - flags.keys() else fault
                  for fault in faults]  # fmt: skip
        raise InputError(list_faults("serve has", faults))
    return config


def run_serve(options: argparse.Namespace) -> None:
    """Serve until a signal."""
    console = Console(options.quiet)
    config = serve_config(options, console)
    try:
        import uvicorn  # noqa: F401

        from undivided.serve.access import add_key
        from undivided.serve.models import Engine, ModelFolder
        from undivided.serve.server import Job, check_openness, run_server, state_folder
    except ModuleNotFoundError as error:
        if str(error.name).startswith("undivided"):
            raise
        raise InputError(f"{error.name} is not installed: pip install 'undivided[serve]'") from None
    if options.new_key is not None:
        print(add_key(config.api_keys_db_path, options.new_key))
        console.say(f"only its hash is kept, in {config.api_keys_db_path}; serve with --api-keys")
        return
    if not options.models:
        raise InputError("no model: undivided serve MODEL …")
    check_openness(config)
    if config.ray and config.workers > 1:
        raise InputError("--workers and --ray: one process is the server where replicas translate; give one of them")
    engine = Engine(options.engine, options.device, options.threads, options.trust)
    folders = [ModelFolder.parse(each) for each in options.models]
    with state_folder() as files:
        job = Job(folders, config, engine, files, options.quiet)
        number = run_server(job, console)
    if number == signal.SIGINT:  # SIGTERM is the usual end of a server, and no failure.
        raise Stopped(number, "stopped; everything that was accepted is answered")
