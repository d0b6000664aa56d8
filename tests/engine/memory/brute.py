"""The room as one would write it with no thought of speed: lists, and a scan for every answer."""

from __future__ import annotations

from fractions import Fraction


class Summing:
    """A listener that adds up what it is told; tenants at nothing are not in it."""

    def __init__(self):
        self.kv, self.adapters = {}, {}

    def kv_bytes(self, tenant, by):
        self._add(self.kv, tenant, by)

    def adapter_bytes(self, tenant, by):
        self._add(self.adapters, tenant, by)

    def _add(self, sums, tenant, by):
        sums[tenant] = sums.get(tenant, 0.0) + by
        if not sums[tenant]:
            del sums[tenant]


class Brute:
    """Pages are counted, never numbered: `size` pages, two floors, adapters, cached prefixes."""

    def __init__(self, size, kv_floor, adapter_floor, host_cap):
        self.size, self.kv_floor, self.adapter_floor = size, kv_floor, adapter_floor
        self.host_cap = host_cap
        self.private = {}  # tenant -> pages
        self.cache = {}  # (salt, adapter, tokens up to its end) -> list of tenants, one a reference
        self.place = {}  # key -> word
        self.need = {}  # key -> pages
        self.users = {}  # key -> list of tenants, one a reference
        self.pins = []
        self.draining_load = set()
        self.loading = []
        self.unused = []  # adapters' keys and cached prefixes, longest out of use first
        self.resting, self.doubled, self.copying = [], [], []  # host copies

    # -- counts

    def on_device(self, key):
        return self.place.get(key) in ("loading", "device", "draining")

    @property
    def adapter_pages(self):
        return sum(self.need[k] for k in self.place if self.on_device(k))

    @property
    def kv_pages(self):
        return sum(self.private.values()) + len(self.cache)

    @property
    def free(self):
        return self.size - self.kv_pages - self.adapter_pages

    def room(self, kv):
        if kv:
            return min(self.free, self.size - self.adapter_floor - self.kv_pages)
        return min(self.free, self.size - self.kv_floor - self.adapter_pages)

    def charged(self, page_bytes):
        """(kv, adapters): exact bytes by tenant."""
        kv = {t: Fraction(n * page_bytes) for t, n in self.private.items() if n}
        adapters = {}
        for users in self.cache.values():
            for tenant in set(users):
                part = Fraction(page_bytes, len(set(users)))
                kv[tenant] = kv.get(tenant, Fraction(0)) + part
        for key, users in self.users.items():
            for tenant in set(users):
                part = Fraction(self.need[key] * page_bytes, len(set(users)))
                adapters[tenant] = adapters.get(tenant, Fraction(0)) + part
        return kv, adapters

    @property
    def cached(self):
        return sum(not users for users in self.cache.values()) + sum(
            self.need[k] for k in self.place if self.on_device(k) and not self.users.get(k)
        )

    @property
    def pinned_pages(self):
        return sum(
            self.need[k]
            for k in self.pins
            if self.place[k] in ("loading", "device") and not self.users.get(k)
        )

    # -- room

    def make_room(self, pages, kv, sparing=None, keep_free=0):
        """(missing, keys of evicted adapters)."""

        def missing():
            cap = self.size - (self.adapter_floor if kv else self.kv_floor)
            own = pages - (cap - (self.kv_pages if kv else self.adapter_pages))
            return max(pages + keep_free - self.free, own), own

        before = (dict(self.cache), dict(self.place), list(self.unused), self.host_state())
        short, gone = missing()[0], []
        while missing()[0] > 0:
            own_only = missing()[1] > 0
            for item in self.unused:
                if item == sparing or (own_only and isinstance(item, str) is kv):
                    continue
                break
            else:
                self.cache, self.place, self.unused, host = before
                self.resting, self.doubled, self.copying = host
                return short, []
            if isinstance(item, str):
                self.evict(item)
                gone.append(item)
            else:
                self.unused.remove(item)
                del self.cache[item]
        return 0, gone

    def evict(self, key):
        if key in self.unused:
            self.unused.remove(key)
        if key in self.doubled:
            self.doubled.remove(key)
            self.resting.append(key)
            self.place[key] = "host"
        else:
            self.place[key] = "disk"
        self.trim()

    # -- adapters

    def register(self, key, pages, in_host):
        if key in self.place:
            if self.place[key] == "draining":
                self.place[key] = "loading" if key in self.loading else "device"
            return
        self.place[key], self.need[key], self.users[key] = "disk", pages, []
        if in_host:
            self.place[key] = "host"
            self.resting.append(key)
            self.trim()

    def order(self, key):
        for copies in (self.resting, self.doubled):
            if key in copies:
                copies.remove(key)
        self.copying.append(key)
        self.place[key] = "loading"
        self.loading.append(key)
        self.trim()

    def arrived(self, key, ok):
        self.loading.remove(key)
        self.copying.remove(key)
        if self.place[key] == "draining":
            self.forget(key)
        elif ok:
            self.place[key] = "device"
            self.doubled.append(key)
            if key not in self.pins:
                self.unused.append(key)
        else:
            self.place[key] = "disk"
        self.trim()

    def unload(self, key):
        if key in self.pins:
            self.pins.remove(key)
        if key in self.loading or self.users[key]:
            self.place[key] = "draining"
        else:
            self.forget(key)

    def forget(self, key):
        for listed in (self.unused, self.resting, self.doubled, self.copying):
            if key in listed:
                listed.remove(key)
        del self.place[key], self.users[key]

    def acquire(self, key, tenant):
        if key in self.unused:
            self.unused.remove(key)
        self.users[key].append(tenant)

    def release(self, key, tenant):
        self.users[key].remove(tenant)
        if self.users[key]:
            return
        if self.place[key] == "draining":
            self.forget(key)
        elif key not in self.pins:
            self.unused.append(key)

    def pin(self, key):
        if self.place.get(key, "draining") != "draining" and key not in self.pins:
            self.pins.append(key)
            if key in self.unused:
                self.unused.remove(key)

    def keep_only(self, keys):
        for key in [k for k in self.pins if k not in keys]:
            self.pins.remove(key)
            if self.place[key] == "device" and not self.users[key]:
                self.unused.append(key)

    # -- host

    def host_state(self):
        return list(self.resting), list(self.doubled), list(self.copying)

    def trim(self):
        if self.host_cap is None:
            return
        while len(self.resting) + len(self.doubled) + len(self.copying) > self.host_cap:
            if self.resting:
                self.place[self.resting.pop(0)] = "disk"
            elif self.doubled:
                self.doubled.pop(0)
            else:
                break

    # -- prefixes

    def match(self, salt, adapter, tokens, page_tokens):
        found = []
        for end in range(page_tokens, len(tokens) + 1, page_tokens):
            if (salt, adapter, tokens[:end]) not in self.cache:
                break
            found.append((salt, adapter, tokens[:end]))
        return found

    def hold(self, prefixes, tenant):
        for prefix in prefixes:
            self.cache[prefix].append(tenant)
            if prefix in self.unused:
                self.unused.remove(prefix)

    def let_go(self, prefixes, tenant):
        for prefix in reversed(prefixes):
            self.cache[prefix].remove(tenant)
            if not self.cache[prefix]:
                self.unused.append(prefix)
