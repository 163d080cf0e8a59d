"""kazoo's side of the bench: one command a line, one line in reply. Times are nanoseconds of the monotonic clock."""

import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

LEASES = 10

address = None
shared = None
own = []
queue = None
held = None
# The locks on many paths, which last from one round to the next.
many_cycles = {}


def connect():
    client = KazooClient(hosts=address, timeout=60)
    client.start(timeout=20)
    return client


def lock_of(client, kind, path):
    if kind == "mutex":
        return client.Lock(path)
    if kind == "read":
        return client.ReadLock(path)
    if kind == "write":
        return client.WriteLock(path)
    if kind == "semaphore":
        return client.Semaphore(path, max_leases=LEASES)
    raise NotImplementedError(kind)


def cycle_of(client, kind, path):
    lock = lock_of(client, kind, path)

    def cycle():
        lock.acquire()
        lock.release()

    return cycle


def cycles(kind, path, count):
    cycle = cycle_of(shared, kind, path)
    times = []
    for _ in range(count):
        begin = time.monotonic_ns()
        cycle()
        times.append(time.monotonic_ns() - begin)
    return times


def hammer(path, millis):
    cycle = cycle_of(shared, "mutex", path)
    times = []
    end = time.monotonic_ns() + millis * 1_000_000
    while True:
        begin = time.monotonic_ns()
        if begin >= end:
            return times
        cycle()
        times.append(time.monotonic_ns() - begin)


def tries(path, count):
    lock = lock_of(shared, "mutex", path)
    times = []
    for _ in range(count):
        begin = time.monotonic_ns()
        if lock.acquire(blocking=False):
            raise RuntimeError("the lock was free")
        times.append(time.monotonic_ns() - begin)
    return times


def run(threads, millis, task_of):
    """Cycles and the time they took."""
    counts = [0] * threads
    failures = []
    ready = threading.Barrier(threads + 1)
    go = threading.Event()
    end = [0]

    def work(index):
        try:
            task = task_of(index)
            task()
            ready.wait()
            go.wait()
            while time.monotonic_ns() < end[0]:
                task()
                counts[index] += 1
        except Exception as error:
            failures.append(error)
            ready.abort()

    running = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    ready.wait()
    begin = time.monotonic_ns()
    end[0] = begin + millis * 1_000_000
    go.set()
    for thread in running:
        thread.join()
    took = time.monotonic_ns() - begin
    if failures:
        raise failures[0]
    return [sum(counts), took]


def many(prefix, paths, threads, millis):
    # A lock object of kazoo's belongs to one thread at a time, and so does each path here.
    if prefix not in many_cycles:
        many_cycles[prefix] = [cycle_of(shared, "mutex", "%s/%d" % (prefix, index)) for index in range(paths)]
    all_cycles = many_cycles[prefix]

    def task_of(index):
        state = [index]

        def task():
            all_cycles[state[0]]()
            state[0] += threads
            if state[0] >= paths:
                state[0] = index

        return task

    return run(threads, millis, task_of)


def mix(kind, path, threads, millis):
    def task_of(index):
        if kind == "semaphore":
            return cycle_of(shared, "semaphore", path)
        read, write = cycle_of(shared, "read", path), cycle_of(shared, "write", path)
        chance = random.Random(index)
        return lambda: (write if chance.randrange(10) == 0 else read)()

    return run(threads, millis, task_of)


class Queue:
    """Waiters behind one holder."""

    def __init__(self, is_shared, path, count, is_held):
        self.grants = []
        self.failures = []
        self.holder = None
        if is_held:
            self.holder = shared.Lock(path)
            self.holder.acquire()
        while not is_shared and len(own) < count:
            own.append(connect())
        clients = [shared if is_shared else own[index] for index in range(count)]
        # The end of a thread costs time, and is no hand-over.
        self.passed = threading.Barrier(count)
        self.threads = [threading.Thread(target=self.wait, args=(client, path)) for client in clients]
        for thread in self.threads:
            thread.start()
        while self.children(path) < count + 1:
            time.sleep(0.005)

    @staticmethod
    def children(path):
        try:
            return shared.get(path)[1].numChildren
        except NoNodeError:
            return 0

    def wait(self, client, path):
        try:
            lock = client.Lock(path)
            lock.acquire()
            self.grants.append(time.monotonic_ns())
            lock.release()
        except Exception as error:
            self.failures.append(error)
        self.passed.wait()

    def first(self):
        """When the first of them was granted, once one was."""
        while not self.grants:
            time.sleep(0.002)
        return [self.grants[0]]

    def drain(self):
        released = time.monotonic_ns()
        if self.holder is not None:
            self.holder.release()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return [released] + self.grants


def answer(words):
    global address, shared, queue, held
    name, words = words[0], words[1:]
    if name == "connect":
        address = words[0]
        shared = connect()
        return []
    if name == "cycles":
        return cycles(words[0], words[1], int(words[2]))
    if name == "hammer":
        return hammer(words[0], int(words[1]))
    if name == "queue":
        queue = Queue(words[0] == "shared", words[1], int(words[2]), words[3] == "held")
        return []
    if name == "first":
        return queue.first()
    if name == "drain":
        return queue.drain()
    if name == "forget":
        for client in own:
            client.stop()
            client.close()
        own.clear()
        return []
    if name == "hold":
        held = shared.Lock(words[0])
        held.acquire()
        return []
    if name == "unhold":
        released = time.monotonic_ns()
        held.release()
        return [released]
    if name == "try":
        return tries(words[0], int(words[1]))
    if name == "many":
        return many(words[0], int(words[1]), int(words[2]), int(words[3]))
    if name == "mix":
        return mix(words[0], words[1], int(words[2]), int(words[3]))
    raise NotImplementedError(name)


def main():
    threading.stack_size(512 * 1024)
    for line in sys.stdin:
        try:
            reply = "ok " + " ".join(str(number) for number in answer(line.split()))
        except Exception as error:
            reply = "error " + repr(error).replace("\n", " ")
        print(reply.strip(), flush=True)


if __name__ == "__main__":
    main()
