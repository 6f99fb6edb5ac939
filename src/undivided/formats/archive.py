"""Zip-based documents, read within bounds: members, ratio, total size, and names that stay inside."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from undivided.core.errors import InputError

MAX_MEMBERS = 20_000
MAX_TOTAL = 1 << 30
MAX_RATIO = 200
"""Bytes of a member for each byte of its compressed form; beyond 1 MiB, more is a zip bomb."""


class Archive:
    """The members of a zip file that was found harmless."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name, self.data = name, data
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(data))
            self.members = self.zip.infolist()
        except (
            zipfile.BadZipFile,
            ValueError,
            OverflowError,
            EOFError,
            NotImplementedError,
            OSError,
            UnicodeError,
            IndexError,
        ) as error:
            raise InputError(f"{name}: damaged, or no zip file as its format is: {error}") from None
        except Exception as error:
            if type(error).__name__ != "error":  # struct.error, of a directory that is cut off
                raise
            raise InputError(f"{name}: damaged: {error}") from None
        self._check()

    def _check(self) -> None:
        names = [each.filename for each in self.members]
        if len(names) > MAX_MEMBERS:
            raise InputError(f"{self.name}: refused: {len(names):,} members, more than {MAX_MEMBERS:,}")
        if len(set(names)) < len(names):
            raise InputError(f"{self.name}: refused: two members have the same name")
        for each in self.members:
            parts = each.filename.split("/")
            if (
                not each.filename
                or ".." in parts
                or each.filename.startswith("/")
                or "\\" in each.filename
                or ":" in parts[0]
                or "\0" in each.filename
            ):
                raise InputError(f"{self.name}: refused: a member is named {each.filename!r}, outside of the archive")
            if each.flag_bits & 1:
                raise InputError(f"{self.name}: it is encrypted; remove its password first")
            if each.file_size > 1 << 20 and each.file_size > MAX_RATIO * max(1, each.compress_size):
                raise InputError(f"{self.name}: refused: {each.filename} unpacks to {each.file_size:,} bytes, as zip bombs do")
        if sum(each.file_size for each in self.members) > MAX_TOTAL:
            raise InputError(f"{self.name}: refused: it unpacks to more than {MAX_TOTAL:,} bytes")

    def names(self) -> list[str]:
        """The names of its files, in their order."""
        return [each.filename for each in self.members if not each.is_dir()]

    def read(self, member: str) -> bytes:
        """The content of a member, which is never more than the archive announced."""
        info = self.zip.getinfo(member)
        try:
            with self.zip.open(info) as stream:
                content = stream.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{self.name}: {member} is damaged: {error}") from None
        if len(content) > info.file_size:
            raise InputError(f"{self.name}: refused: {member} unpacks to more than it announces")
        return content

    def replace(self, changed: Mapping[str, bytes]) -> bytes:
        """The archive with other content of some members; everything else keeps its order, date and compression."""
        if not changed:
            return self.data
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as new:
            for info in self.members:
                copy = zipfile.ZipInfo(info.filename, info.date_time)
                copy.compress_type, copy.external_attr, copy.create_system = (
                    info.compress_type,
                    info.external_attr,
                    info.create_system,
                )
                new.writestr(copy, changed[info.filename] if info.filename in changed else self.read(info.filename))
        return result.getvalue()
