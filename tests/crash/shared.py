"""A page of memory that the clients share with whoever kills them: what to do, and how far each one is."""

import mmap
import struct

_HEAD = struct.Struct("<bHqb")  # phase, port, frontier, lazy
_SLOT = struct.Struct("<bbqq")  # in a call, idle, acknowledged, lost
_SLOTS = 64  # where they begin

PAUSE, RUN, DRAIN, END = range(4)


class Shared:
    """Written by one process each (the frontier by all; a step lost there does no harm)."""

    def __init__(self, clients):
        self._memory, self.clients = mmap.mmap(-1, mmap.PAGESIZE), clients

    @property
    def head(self):
        """(phase, port, frontier, lazy)"""
        return _HEAD.unpack_from(self._memory)

    def command(self, phase, port=None, lazy=None):
        now = self.head
        _HEAD.pack_into(self._memory, 0, phase, now[1] if port is None else port, now[2],
                        now[3] if lazy is None else lazy)

    @property
    def phase(self):
        return self.head[0]

    def advance(self):
        phase, port, frontier, lazy = self.head
        struct.pack_into("<q", self._memory, struct.calcsize("<bH"), frontier + 1)
        return frontier

    def slot(self, n):
        return Slot(self._memory, _SLOTS + n * _SLOT.size)

    def slots(self):
        return [self.slot(n) for n in range(self.clients)]


class Slot:
    """One client's line."""

    def __init__(self, memory, at):
        self._memory, self._at = memory, at

    def read(self):
        """(in a call, idle, acknowledged, lost)"""
        return _SLOT.unpack_from(self._memory, self._at)

    def write(self, calling=None, idle=None, acknowledged=0, lost=0):
        now = self.read()
        _SLOT.pack_into(self._memory, self._at, now[0] if calling is None else calling,
                        now[1] if idle is None else idle, now[2] + acknowledged, now[3] + lost)
