"""Argos Translate installs a package and translates lines from stdin with it: python with_argos.py PACKAGE FROM TO

Run with ARGOS_PACKAGES_DIR set to an empty folder.
"""

import sys

from argostranslate import package, translate


class WholeLine:
    """Every line is one sentence: the models that split text are downloaded, and no part of the package."""

    def split_sentences(self, text: str) -> list[str]:
        return [text]


translate.MiniSBDSentencizer = lambda _: WholeLine()
package.install_from_path(sys.argv[1])
for line in sys.stdin:
    print(translate.translate(line.rstrip("\n"), sys.argv[2], sys.argv[3]))
