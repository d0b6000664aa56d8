"""Load orders are executed beside the step: disk reads hold up nobody, faults hurt their own."""

from __future__ import annotations

import threading

from engine.loading import LoadDone, LoaderThread
from engine.memory.moves import LoadOrder

PATIENCE_S = 20.0


class Device:
    def __init__(self):
        self.there, self.dropped = {}, []

    def copy_in(self, adapter, pages):
        self.there[adapter] = pages

    def drop(self, key):
        self.dropped.append(key)


class Disk:
    """Host copies by name; those of `slow` are read when `gate` opens, those of `bad` never."""

    def __init__(self, slow=(), bad=()):
        self.slow, self.bad, self.gate = slow, bad, threading.Event()
        self.kept, self.reads = set(), []

    def fetch(self, key):
        if key in self.kept:
            return key
        self.reads.append(key)
        if key in self.bad:
            raise OSError(f"/secret/{key}: gone")
        if key in self.slow:
            assert self.gate.wait(PATIENCE_S)
        self.kept.add(key)
        return key

    def drop(self, key):
        self.kept.discard(key)


def loader(disk):
    device, done, told = Device(), [], threading.Condition()

    def callback(load):
        with told:
            done.append(load)
            told.notify_all()

    def wait_for(count):
        with told:
            assert told.wait_for(lambda: len(done) >= count, PATIENCE_S)
        return done

    thread = LoaderThread(device, disk)
    thread.on_done(callback)
    return thread, device, wait_for


def order(key, from_disk=False):
    return LoadOrder(key, (1, 2), "a", 1, from_disk)


def test_an_adapter_read_from_disk_does_not_hold_up_those_in_host_memory():
    disk = Disk(slow=("cold",))
    disk.kept.add("warm")
    thread, device, wait_for = loader(disk)
    thread.begin(order("cold", from_disk=True))
    thread.begin(order("warm"))
    assert wait_for(1) == [LoadDone("warm")]
    disk.gate.set()
    assert wait_for(2)[1:] == [LoadDone("cold")]
    thread.close()
    assert device.there == {"warm": (1, 2), "cold": (1, 2)}


def test_a_copy_that_was_dropped_is_read_again():
    disk = Disk()
    thread, _, wait_for = loader(disk)
    thread.begin(order("x", from_disk=True))
    wait_for(1)
    thread.drop_copy("x")
    thread.begin(order("x", from_disk=True))
    wait_for(2)
    thread.close()
    assert disk.reads == ["x", "x"]


def test_a_bad_adapter_is_told_without_its_path_and_the_next_one_loads(capfd):
    thread, device, wait_for = loader(Disk(bad=("bad", "worse")))
    thread.begin(order("bad", from_disk=True))
    thread.begin(order("worse"))
    thread.begin(order("good", from_disk=True))
    done = {load.key: load.error for load in wait_for(3)}
    thread.close()
    assert done["good"] is None
    assert list(device.there) == ["good"]
    for key in ("bad", "worse"):
        assert "OSError" in done[key]
        assert "/secret" not in done[key]
    assert "/secret/bad" in capfd.readouterr().err, "the operator is told where"


def test_what_was_begun_is_finished_before_it_closes():
    thread, device, _ = loader(Disk())
    for i in range(20):
        thread.begin(order(f"k{i}", from_disk=i % 2 == 0))
    thread.close()
    thread.forget("k3")
    assert len(device.there) == 20
    assert device.dropped == ["k3"]
