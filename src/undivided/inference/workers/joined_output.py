"""The output of several workers: finished shards, one after the other, moved into place when all are there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from undivided.core.errors import InputError, UndividedError
from undivided.core.files import check_replaceable, fsync, keep_mode, open_append, read_json, write_atomic
from undivided.inference.workers.shards import Shard, ShardPlan, shards_done


class JoinedOutput:
    """The output as far as it is done, in the order of the shards. A shard that was added is removed."""

    def __init__(self, plan: ShardPlan, output: Path) -> None:
        check_replaceable(output)
        self.plan, self.output = plan, output
        self.path, self.note = plan.folder / "joined", plan.folder / "joined.json"
        state = read_json(self.note) if self.note.exists() else {}
        self.count, self.size = int(state.get("shards", 0)), int(state.get("bytes", 0))
        # Stopped between the last two steps: the output is in its place and only the folder is left.
        self.moved = bool(state) and not self.path.exists()
        if self.moved and not (self.count == len(plan.shards) and output.exists() and output.stat().st_size == self.size):
            raise InputError(f"{plan.folder}: {self.path.name} is missing; remove the folder to start over")
        if not self.moved and self.path.exists() and self.path.stat().st_size < self.size:
            raise InputError(f"{plan.folder}: {self.path.name} is damaged; remove the folder to start over")
        # Finished shards that wait for those before them. Only these are added: the coordinator checks each one first.
        self.ready = {shard.number for shard in plan.shards[self.count :] if plan.read_marker(shard) is not None}
        if not self.moved:
            # What was added after the last note is not counted yet: it is added again.
            with open_append(self.path) as out:
                out.truncate(self.size)

    def advance(self) -> None:
        """Add the shards that come next and are done; when they are on the disk and noted, remove their files."""
        added: list[Shard] = []
        if self.count not in self.ready:
            return
        with open_append(self.path) as out:
            for shard in self.plan.shards[self.count :]:
                if shard.number not in self.ready:
                    break
                with shard.path(self.plan.folder).open("rb") as stream:
                    shutil.copyfileobj(stream, out, 1 << 20)
                added.append(shard)
            out.flush()
            os.fsync(out.fileno())
            self.size = out.tell()
        self.count += len(added)
        write_atomic(self.note, json.dumps({"shards": self.count, "bytes": self.size}).encode())
        for shard in added:
            self.ready.remove(shard.number)
            shard.path(self.plan.folder).unlink()
            shard.marker(self.plan.folder).unlink()

    def finish(self) -> None:
        """Move the complete output into its place."""
        if self.moved:
            return
        self.advance()
        if self.count != len(self.plan.shards):
            raise UndividedError(f"{self.plan.folder}: {shards_done(self.count, len(self.plan.shards))}; run the command again")
        write_atomic(self.note, json.dumps({"shards": self.count, "bytes": self.size}).encode())
        with self.path.open("rb") as joined:
            keep_mode(joined.fileno(), self.output)
        self.path.replace(self.output)
        fsync(self.output.parent)
