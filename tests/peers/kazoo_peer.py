"""A client of kazoo's lock, driven by lines: see README.md."""

import logging
import queue
import random
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.recipe.lock import Lock


class CuratorsLock(Lock):
    """The lock with the names of Curator."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


def say(line):
    print(line, flush=True)


class Peer:
    def __init__(self, connect, session):
        self.client = KazooClient(hosts=connect, timeout=session / 1000.0, command_retry={"max_tries": -1})
        # When each session that was lost became doubtful, and when that was told.
        self.losses = []
        self.doubtful_since = None
        self.client.add_listener(self.listen)
        self.client.start(timeout=60)
        self.locks = {}
        self.is_stopped = threading.Event()

    def lock(self, kind, path):
        key = (kind, path)
        if key not in self.locks:
            if kind == "compatible":
                self.locks[key] = CuratorsLock(self.client, path, "kazoo")
            elif kind == "own":
                self.locks[key] = Lock(self.client, path, "kazoo", extra_lock_patterns=("lock-",))
            elif kind == "read":
                self.locks[key] = self.client.ReadLock(path, "kazoo")
            elif kind == "write":
                self.locks[key] = self.client.WriteLock(path, "kazoo")
            elif kind.startswith("semaphore:"):
                self.locks[key] = self.client.Semaphore(path, "kazoo", max_leases=int(kind.split(":")[1]))
            else:
                self.locks[key] = Lock(self.client, path, "kazoo")
        return self.locks[key]

    def describe(self, lock):
        # A lease's znode is what its semaphore makes.
        node = lock.path + "/" + lock.node if hasattr(lock, "node") else lock.create_path
        stat = self.client.retry(self.client.exists, node)
        found = "%d %d" % (stat.czxid, stat.ephemeralOwner) if stat else "0 0"
        return "%s %s %d" % (node, found, self.session())

    def session(self):
        # As a signed number, as the others say it.
        number = self.client.client_id[0]
        return number - (1 << 64) if number >= 1 << 63 else number

    def listen(self, state):
        now = time.monotonic_ns()
        if state == KazooState.CONNECTED:
            self.doubtful_since = None
            return
        self.doubtful_since = self.doubtful_since or now
        if state == KazooState.LOST:
            self.losses.append((self.doubtful_since, now))

    def once(self, lock, is_slow):
        lock.acquire()
        begin = time.monotonic_ns()
        node = self.describe(lock)
        if is_slow:
            time.sleep(random.uniform(0.3, 3) if random.randrange(40) == 0 else random.uniform(0, 0.015))
        end = time.monotonic_ns()
        lock.release()
        doubts = [since for since, told in self.losses if told >= begin]
        valid_until = max(begin, doubts[0]) if doubts else end
        say("hold write %d %d %s %d %d" % (begin, end, node, valid_until, bool(doubts)))

    def obey(self, words):
        if words[0] == "acquire":
            self.held = self.lock(words[1], words[2])
            self.held.acquire()
            say("acquired %d %s" % (time.monotonic_ns(), self.describe(self.held)))
        elif words[0] == "release":
            say("released %d" % time.monotonic_ns())
            self.held.release()
        elif words[0] == "hammer":
            for _ in range(int(words[3])):
                if self.is_stopped.is_set():
                    break
                self.once(self.lock(words[1], words[2]), len(words) > 4)
            say("done 0")
        elif words[0] == "read":
            say("data " + self.client.get(words[1])[0].decode())
        elif words[0] == "list":
            say("list " + " ".join(self.lock(words[1], words[2]).contenders()))
        else:
            raise ValueError(words[0])


def main(connect, _, session):
    logging.basicConfig(level=logging.CRITICAL)
    peer = Peer(connect, int(session))
    say("ready %d %s" % (peer.session(), peer.client.client_id[1].hex()))
    orders = queue.Queue()
    threading.Thread(target=work, args=(peer, orders), daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        if line.strip() == "stop":
            peer.is_stopped.set()
        else:
            orders.put(line.split())
    peer.client.stop()
    say("bye")


def work(peer, orders):
    while True:
        try:
            peer.obey(orders.get())
        except Exception as error:
            say("error %r" % error)


main(*sys.argv[1:])
