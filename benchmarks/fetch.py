"""Fetch a source distribution by pip's own means (its index, settings, certificates), without building or running anything of it.

`pip download` runs the build script of a source distribution to learn its metadata. Here pip only finds the file and its sha256,
and the file is saved. Run with the Python whose pip is meant: python fetch.py NAME VERSION FOLDER
"""

import hashlib
import sys
from pathlib import Path

from pip._internal.commands import create_command


def fetch(name: str, version: str, folder: Path) -> Path:
    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        links = [
            found.link for found in finder.find_all_candidates(name) if str(found.version) == version and not found.link.is_wheel
        ]
        if not links:
            raise SystemExit(f"{name} {version}: pip finds no source distribution")
        link = links[0]
        answer = session.get(link.url_without_fragment, headers={"Accept-Encoding": "identity"})
        answer.raise_for_status()
    found = hashlib.sha256(answer.content).hexdigest()
    if found != (link.hash if link.hash_name == "sha256" else found):
        raise SystemExit(f"{link.filename}: its sha256 is not that of the index")
    target = folder / link.filename
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(answer.content)
    return target


if __name__ == "__main__":
    print(fetch(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
