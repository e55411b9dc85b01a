"""``steplens view``: the web UI, on this machine and without the network."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from steplens.cli.line.arguments import Scheduler
from steplens.cli.shown_runs import Paths, needing_the_extra
from steplens.cli.text.text import console, plain
from steplens.cli.view_captures import Trainings
from steplens.common.errors import check_readable
from steplens.common.storage.files import list_remote
from steplens.readers.glance import refuse_hopeless

#: how long a thread may keep Python from the others, s: a tenth of what Python lets it
_TURN_S = 0.0005


def view(
    paths: Paths,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on. Any but 127.0.0.1 lets other machines connect.")
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link and open no browser.")] = False,
    scheduler: Scheduler = "",
) -> None:
    """Show runs in the browser: overview, steps, operators, timeline, memory, data pipeline, ranks and advice.

    The page is served on this machine, loads nothing from elsewhere, and needs the token of the printed link. Ctrl-C ends it.
    """
    for path in paths:
        # of a folder that is empty yet, a training may write its first window any moment
        list_remote(path)
        (check_readable if path.is_dir() else refuse_hopeless)(path)
    with needing_the_extra("the web UI"):
        from steplens.common.executors import named_executor
        from steplens.server.http.address import is_local, open_listening_socket
        from steplens.server.http.built_pages import STATIC, check_built
        from steplens.server.runs import RunLibrary

    executor = named_executor(scheduler) if scheduler else None
    # said here, and not by the browser
    check_built(STATIC)
    out = console()
    if not is_local(host):
        out.print(plain(f"warning: everybody who can reach {host} and knows the link can see these runs, unencrypted", "yellow"))

    def print_link(link: str) -> None:
        out.print(plain(link, "bold"), soft_wrap=True)
        out.print(plain("Ctrl-C ends it"))
        # whoever reads the link from a pipe waits for it
        out.file.flush()

    bound = open_listening_socket(host, port)
    library = RunLibrary(paths, executor)
    # the runs are read while most of the server is still being loaded; what reads needs Python for a moment every few
    # milliseconds, and would wait as long as it works each time
    sys.setswitchinterval(_TURN_S)
    library.start()
    from steplens.server.serve import serve_runs

    serve_runs(library, bound, host, not no_browser, print_link, Trainings())
    out.print(plain("stopped"))
