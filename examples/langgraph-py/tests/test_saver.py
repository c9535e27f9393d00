"""COUNTERFOIL_SIDECAR=../../bin/sidecar python3 -m unittest discover -s tests"""

from __future__ import annotations

import asyncio
import itertools
import sys
import unittest
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from world import STUBBED, Sidecar, Way, base
from counterfoil_langgraph import CounterfoilError, CounterfoilSaver, names, values

sidecar: Sidecar
counter = itertools.count(1)


def setUpModule() -> None:
    global sidecar
    sidecar = Sidecar()
    print(f"the saver's base class is {'a stub' if STUBBED else 'the real one'}", file=sys.stderr)


def tearDownModule() -> None:
    sidecar.close()


def saver(**options: Any) -> CounterfoilSaver:
    return CounterfoilSaver(**{"url": sidecar.url, "user": "ada", **options})


def a_thread() -> str:
    return f"thread-{next(counter)}"


def config(thread: str, checkpoint: str | None = None, ns: str = "", **more: Any) -> dict[str, Any]:
    at = {"thread_id": thread, "checkpoint_ns": ns, **more}
    return {"configurable": at if checkpoint is None else {**at, "checkpoint_id": checkpoint}}


def checkpoint(checkpoint_id: str, channels: dict[str, Any], versions: Mapping[str, float]) -> dict[str, Any]:
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": channels,
        "channel_versions": versions,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": None,
    }


def metadata(step: int, source: str = "loop") -> dict[str, Any]:
    return {"source": source, "step": step, "parents": {}}


def put_steps(to: CounterfoilSaver, thread: str, count: int, ns: str = "") -> None:
    """Checkpoints 000, 001 and so on, each on top of the one before."""
    at = config(thread, ns=ns)
    for step in range(count):
        at = to.put(at, checkpoint(f"{step:03}", {"n": step}, {"n": step + 1}), metadata(step), {"n": step + 1})


def got(by: CounterfoilSaver, at: dict[str, Any]) -> Any:
    one = by.get_tuple(at)
    if one is None:
        raise AssertionError(f"there is no checkpoint {at}")
    return one


def found(listing: Any) -> list[str]:
    return [one.checkpoint["id"] for one in listing]


def items(thread: str, user: str = "ada") -> dict[str, str]:
    """The version of everything in a thread's store."""
    versions: dict[str, str] = {}
    path = f"/stores/langgraph%2F{thread}/items?limit=100&keys_only=true"
    page: dict[str, Any] = {"next": ""}
    while "next" in page:
        page = sidecar.send("GET", path + (f"&after={page['next']}" if page["next"] else ""), headers={"Counterfoil-User": user})
        versions |= {item["key"]: item["etag"] for item in page.get("items", [])}
    return versions


class Checkpoints(unittest.TestCase):
    def test_a_thread_that_is_not_there(self) -> None:
        self.assertIsNone(saver().get_tuple(config(a_thread())))
        self.assertIsNone(saver().get_tuple(config(a_thread(), "none")))
        self.assertEqual([], list(saver().list(config(a_thread()))))

    def test_what_is_put_is_got(self) -> None:
        thread, keeper = a_thread(), saver()
        first = checkpoint("001", {"messages": ["hello"], "count": 1, "raw": b"\x00\xff"}, {"messages": 1.5, "count": 1.5, "raw": 1})
        at = keeper.put(config(thread, user_name="Ada", __secret="x"), first, metadata(-1, "input"), first["channel_versions"])
        self.assertEqual(config(thread, "001"), at)
        # Of the second step only the changed channel is written.
        second = checkpoint("002", {"messages": ["hello"], "count": 2}, {"messages": 1.5, "count": 2.25, "raw": 1})
        keeper.put(at, second, metadata(0), {"count": 2.25})

        latest = got(saver(), config(thread))
        self.assertEqual((second, config(thread, "002"), at), (latest.checkpoint, latest.config, latest.parent_config))
        self.assertEqual(metadata(0), latest.metadata)
        self.assertEqual([], latest.pending_writes)
        earlier = got(saver(), at)
        self.assertEqual((first, None), (earlier.checkpoint, earlier.parent_config))
        self.assertEqual({**metadata(-1, "input"), "user_name": "Ada"}, earlier.metadata)
        self.assertEqual(
            {"m:", "c::001", "c::002", "v::messages:1.5", "v::count:1.5", "v::count:2.25", "v::raw:1"}, set(items(thread))
        )

    def test_a_channel_without_a_value(self) -> None:
        thread, keeper = a_thread(), saver()
        at = keeper.put(config(thread), checkpoint("1", {"a": None, "b": 1}, {"a": 1, "b": 1}), metadata(0), {"a": 1, "b": 1})
        keeper.put(at, checkpoint("2", {"a": None}, {"a": 1, "b": 2}), metadata(1), {"b": 2})
        self.assertEqual({"a": None}, got(keeper, config(thread)).checkpoint["channel_values"])
        self.assertEqual({"a": None, "b": 1}, got(keeper, at).checkpoint["channel_values"])

    def test_namespaces_have_their_own_latest(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 3)
        put_steps(keeper, thread, 2, ns="child:1|grandchild")
        self.assertEqual("002", got(keeper, config(thread)).checkpoint["id"])
        inner = got(keeper, config(thread, ns="child:1|grandchild"))
        self.assertEqual(config(thread, "001", "child:1|grandchild"), inner.config)
        self.assertEqual(["001", "000"], found(keeper.list(config(thread, ns="child:1|grandchild"))))
        self.assertEqual(5, len(list(keeper.list({"configurable": {"thread_id": thread}}))))

    def test_a_branch_from_an_earlier_checkpoint(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 2)
        keeper.put(config(thread, "000"), checkpoint("002", {"n": 9}, {"n": 2.5}), metadata(1, "fork"), {"n": 2.5})
        latest = got(keeper, config(thread))
        self.assertEqual(({"n": 9}, config(thread, "000")), (latest.checkpoint["channel_values"], latest.parent_config))
        self.assertEqual({"n": 1}, got(keeper, config(thread, "001")).checkpoint["channel_values"])

    def test_values_larger_than_an_item(self) -> None:
        thread, keeper = a_thread(), saver()
        large = {"text": "x" * (values.PIECE_BYTES + 1), "bytes": bytes(range(256)) * 8192}
        keeper.put(config(thread), checkpoint("1", large, {"text": 1, "bytes": 1}), metadata(0), {"text": 1, "bytes": 1})
        self.assertEqual(large, got(keeper, config(thread)).checkpoint["channel_values"])
        too_large = {"bytes": bytes(values.VALUE_BYTES_MAX + 1)}
        with self.assertRaisesRegex(ValueError, "keep it elsewhere"):
            keeper.put(config(thread), checkpoint("2", too_large, {"bytes": 2}), metadata(1), {"bytes": 2})

    def test_more_channels_than_a_batch(self) -> None:
        thread, keeper = a_thread(), saver()
        many = {f"channel-{n}": n for n in range(230)}
        versions = dict.fromkeys(many, 1)
        keeper.put(config(thread), checkpoint("1", many, versions), metadata(0), versions)
        self.assertEqual(many, got(keeper, config(thread)).checkpoint["channel_values"])

    def test_ids_that_are_no_names(self) -> None:
        thread, keeper = "Größe/🚀 \ud800" + "x" * 300, saver()
        at = keeper.put(config(thread, ns="ä"), checkpoint("a b:c", {"ch/1": 1}, {"ch/1": 1}), metadata(0), {"ch/1": 1})
        keeper.put_writes(at, [("ch/1", 2)], "task 1/2")
        latest = got(keeper, config(thread, ns="ä"))
        self.assertEqual(({"ch/1": 1}, [("task 1/2", "ch/1", 2)]), (latest.checkpoint["channel_values"], latest.pending_writes))
        keeper.delete_thread(thread)


class Lists(unittest.TestCase):
    def test_newest_first_and_chosen(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 6)
        at = config(thread)
        self.assertEqual(["005", "004", "003", "002", "001", "000"], found(keeper.list(at)))
        self.assertEqual(["005", "004"], found(keeper.list(at, limit=2)))
        self.assertEqual([], found(keeper.list(at, limit=0)))
        self.assertEqual(["001", "000"], found(keeper.list(at, before=config(thread, "002"))))
        self.assertEqual(["001"], found(keeper.list(at, before=config(thread, "002"), limit=1)))
        self.assertEqual(["003"], found(keeper.list(at, filter={"step": 3})))
        self.assertEqual([], found(keeper.list(at, filter={"step": 3, "source": "input"})))
        self.assertEqual(6, len(found(keeper.list(at, filter={"parents": {}}))))
        self.assertEqual(["004"], found(keeper.list(config(thread, "004"))))

    def test_more_than_a_page(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 120)
        self.assertEqual([f"{n:03}" for n in reversed(range(120))], found(keeper.list(config(thread))))

    def test_all_threads_of_a_user(self) -> None:
        mine = saver(user="lister")
        threads = {a_thread() for _ in range(25)}
        for thread in threads:
            put_steps(mine, thread, 1)
        self.assertEqual(threads, {one.config["configurable"]["thread_id"] for one in mine.list(None)})


class Writes(unittest.TestCase):
    def test_the_first_is_kept_and_the_order_is_by_task(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        at = config(thread, "000")
        keeper.put_writes(at, [("a", 1), ("b", [2])], "task-2", "~path/2")
        keeper.put_writes(at, [("a", 3)], "task-1", "~path/1")
        keeper.put_writes(at, [("a", "again")], "task-2", "~path/2")
        keeper.put_writes(at, [("c", 4)], "task-3")
        want = [("task-3", "c", 4), ("task-1", "a", 3), ("task-2", "a", 1), ("task-2", "b", [2])]
        self.assertEqual(want, got(keeper, at).pending_writes)
        self.assertEqual(want, next(keeper.list(at)).pending_writes)

    def test_the_last_error_interrupt_and_resumption_are_kept(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        at = config(thread, "000")
        for turn in ("first", "last"):
            keeper.put_writes(at, [(channel, turn) for channel in base.WRITES_IDX_MAP], "task")
        by_index = sorted(base.WRITES_IDX_MAP, key=lambda channel: base.WRITES_IDX_MAP[channel])
        self.assertEqual([("task", channel, "last") for channel in by_index], got(keeper, at).pending_writes)

    def test_more_than_a_page(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        keeper.put_writes(config(thread, "000"), [("c", n) for n in range(150)], "task")
        self.assertEqual([("task", "c", n) for n in range(150)], got(keeper, config(thread)).pending_writes)

    def test_they_belong_to_one_checkpoint(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 2)
        keeper.put_writes(config(thread, "000"), [("c", 1)], "task")
        self.assertEqual([], got(keeper, config(thread)).pending_writes)

    def test_without_writes(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        keeper.put_writes(config(thread, "000"), [], "task")
        self.assertEqual([], got(keeper, config(thread)).pending_writes)


class Deletes(unittest.TestCase):
    def test_a_thread_goes_whole_and_alone(self) -> None:
        keeper = saver(user="deleter")
        gone, stays = a_thread(), a_thread()
        put_steps(keeper, gone, 60)
        put_steps(keeper, gone, 1, ns="inner")
        keeper.put_writes(config(gone, "000"), [("c", 1)], "task")
        put_steps(keeper, stays, 1)
        keeper.delete_thread(gone)
        self.assertEqual({}, items(gone, "deleter"))
        self.assertIsNone(keeper.get_tuple(config(gone)))
        self.assertEqual([stays], [one.config["configurable"]["thread_id"] for one in keeper.list(None)])
        keeper.delete_thread(gone)
        keeper.delete_thread(a_thread())
        put_steps(keeper, gone, 1)
        self.assertEqual("000", got(keeper, config(gone)).checkpoint["id"])


class Safety(unittest.TestCase):
    def test_users_do_not_see_each_other(self) -> None:
        thread = a_thread()
        put_steps(saver(), thread, 1)
        eve = saver(user="eve")
        self.assertIsNone(eve.get_tuple(config(thread)))
        self.assertEqual([], list(eve.list(None)))
        eve.delete_thread(thread)
        self.assertIsNotNone(saver().get_tuple(config(thread)))

    def test_users_whose_names_are_no_plain_ascii(self) -> None:
        thread = a_thread()
        put_steps(saver(user="Ädá %41/🚀"), thread, 1)
        self.assertIsNone(saver(user="Ädá A/🚀").get_tuple(config(thread)))
        self.assertIsNotNone(saver(user="Ädá %41/🚀").get_tuple(config(thread)))

    def test_a_store_that_does_not_keep_users_apart(self) -> None:
        thread = a_thread()
        sidecar.send("PUT", f"/stores/langgraph%2F{thread}")
        secret = {"value": {"checkpoint_id": "another user's"}}
        sidecar.send("PUT", f"/stores/langgraph%2F{thread}/items/m%3A", secret)
        before = items(thread)
        for attempt in (
            lambda: put_steps(saver(), thread, 1),
            lambda: saver().get_tuple(config(thread)),
            lambda: list(saver().list(config(thread))),
            lambda: saver().put_writes(config(thread, "000"), [("n", 1)], "task"),
            lambda: saver().delete_thread(thread),
        ):
            with self.assertRaisesRegex(CounterfoilError, "not-isolated"):
                attempt()
        self.assertEqual(before, items(thread))

    def test_again_changes_nothing(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 3)
        before = items(thread)
        put_steps(keeper, thread, 3)
        self.assertEqual(before, items(thread))

    def test_another_checkpoint_under_the_same_id_replaces_it(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 2)
        keeper.put(config(thread, "001"), checkpoint("001", {"n": 1, "m": 5}, {"n": 2, "m": 1}), metadata(7), {"m": 1})
        latest = got(keeper, config(thread))
        self.assertEqual(({"n": 1, "m": 5}, 7), (latest.checkpoint["channel_values"], latest.metadata["step"]))
        self.assertEqual(config(thread, "000"), latest.parent_config)

    def test_another_value_under_the_same_version_is_refused(self) -> None:
        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        before = items(thread)
        with self.assertRaisesRegex(CounterfoilError, "get_next_version"):
            keeper.put(config(thread, "000"), checkpoint("001", {"n": "other"}, {"n": 1}), metadata(1), {"n": 1})
        self.assertEqual(before, items(thread))

    def test_a_crash_between_checkpoint_and_marker(self) -> None:
        class Crashing(CounterfoilSaver):
            def _advance(self, store: str, thread: str, ns: str, checkpoint_id: str, parent: str | None) -> None:
                raise KeyboardInterrupt

        thread, keeper = a_thread(), saver()
        put_steps(keeper, thread, 1)
        step = (config(thread, "000"), checkpoint("001", {"n": 1}, {"n": 2}), metadata(1), {"n": 2})
        with self.assertRaises(KeyboardInterrupt):
            Crashing(sidecar.url, "ada").put(*step)
        self.assertEqual("000", got(keeper, config(thread)).checkpoint["id"])
        keeper.put(*step)
        self.assertEqual("001", got(keeper, config(thread)).checkpoint["id"])
        self.assertEqual(["001", "000"], found(keeper.list(config(thread))))

    def test_every_answer_lost_once(self) -> None:
        """The request arrived, the answer did not: the next attempt finds out."""
        want, lost = None, 0
        for nth in itertools.count():
            thread = f"lossy-{nth}"
            way = Way(sidecar.url, nth)
            self.addCleanup(way.close)
            there = saver(url=way.url, user=f"lossy-{nth}")
            put_steps(there, thread, 2)
            there.put_writes(config(thread, "001"), [("c", 1), ("__error__", "e")], "task")
            got = [one._replace(config={}, parent_config=None) for one in there.list(config(thread))]
            want = want or got  # with nth 0 none is lost
            self.assertEqual(want, got, f"with the answer to request {nth} lost")
            if way.count < nth:
                break
            lost = nth
        self.assertGreater(lost, 10)

    def test_who_lost_the_lease_writes_nothing(self) -> None:
        thread = a_thread()
        take = lambda: sidecar.send("POST", f"/runs/{thread}/lease", {"owner": "worker", "ttl_seconds": 60})["fence"]
        fence = take()
        first = saver(run=thread, fence=fence)
        put_steps(first, thread, 1)
        sidecar.send("DELETE", f"/runs/{thread}/lease?fence={fence}")
        second = saver(run=thread, fence=take())
        before = items(thread)
        with self.assertRaises(CounterfoilError) as refused:
            put_steps(first, thread, 2)
        self.assertEqual("fenced", refused.exception.problem)
        with self.assertRaisesRegex(CounterfoilError, "fenced"):
            first.put_writes(config(thread, "000"), [("c", 1)], "task")
        with self.assertRaisesRegex(CounterfoilError, "fenced"):
            first.delete_thread(thread)
        self.assertEqual(before, items(thread))
        put_steps(second, thread, 2)
        self.assertEqual("001", got(first, config(thread)).checkpoint["id"])

    def test_many_at_once(self) -> None:
        thread, keeper = a_thread(), saver()

        def put(n: int) -> None:
            keeper.put(config(thread), checkpoint(f"{n:03}", {"n": n}, {"n": n + 1.5}), metadata(n), {"n": n + 1.5})

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, range(24)))
        self.assertEqual([f"{n:03}" for n in reversed(range(24))], found(keeper.list(config(thread))))
        self.assertEqual("023", got(keeper, config(thread)).checkpoint["id"])

    def test_nobody_there(self) -> None:
        with self.assertRaises(CounterfoilError) as refused:
            saver(url="http://127.0.0.1:9").get_tuple(config("t"))
        self.assertEqual(("unreachable", 0, True), (refused.exception.problem, refused.exception.status, refused.exception.safe_to_retry))

    def test_arguments_that_cannot_be(self) -> None:
        for options in ({"url": "127.0.0.1:8100"}, {"user": ""}, {"user": "x" * 257}, {"token": "a b"}, {"prefix": "x/y"}, {"prefix": ".."}, {"run": "r"}, {"attempts": 0}):
            with self.subTest(options), self.assertRaises(ValueError):
                saver(**options)
        for bad in ({}, {"thread_id": ""}, {"thread_id": 7}, {"thread_id": "t", "checkpoint_ns": 7}):
            with self.subTest(bad), self.assertRaises(TypeError):
                saver().get_tuple({"configurable": bad})
        with self.assertRaisesRegex(ValueError, "256 bytes"):
            saver().put(config("t"), checkpoint("x" * 257, {}, {}), metadata(0), {})


class Versions(unittest.TestCase):
    def test_they_grow_and_differ(self) -> None:
        version, other = None, saver().get_next_version(None)
        for whole in range(1, 50):
            version = saver().get_next_version(version)
            self.assertEqual(whole, int(version))
        self.assertNotEqual(other, saver().get_next_version(None))


class Names(unittest.TestCase):
    def test_they_are_those_of_the_saver_for_langgraph_js(self) -> None:
        uuid = "1f0c5b2e-8d9a-6f00-8000-3c1b7e9a4d21"
        for want, got in (
            ("langgraph/t-1", names.store_name("langgraph", "t-1")),
            ("langgraph/~iV1P_xuJAkicUxru1lYjm3OuA_AoqOtE", names.store_name("langgraph", "Größe 🚀")),
            ("a/b/" + "x" * 124, names.store_name("a/b", "x" * 124)),
            ("a/b/~pPzWET6-7EUrsfCxpSlnvLH-4OnqM_ur", names.store_name("a/b", "x" * 125)),
            ("t:~oWDVrT8882wCjnJqHPnBw5yyrSbf62v8", names.thread_key("y" * 101)),
            ("m:", names.marker_key("")),
            ("m:~sn7kSHdRgQQdFXw-nb6IfNIZ9qcPyN-H", names.marker_key("child:1|grandchild")),
            ("c:", names.checkpoint_prefix(None)),
            (f"c::{uuid}", names.checkpoint_key("", uuid)),
            ("v::messages:3.25", names.channel_key("", "messages", 3.25)),
            ("v::messages:3", names.channel_key("", "messages", 3.0)),
            (
                "v:~q8CeLCTs67TlDB7cT9MEFquNr_OG3SWx:~4C-UClyZ31rZHXWTFMwmbxvCS6vvuVkg:1.0000000002328306",
                names.channel_key("n:s", "branch:to:a", 1 + 1 / 2**32),
            ),
            ("v::m:~L_LRmC__0dBZijIjdIouIPSsmWSkQmXg", names.channel_key("", "m", "00000000000000000000000000000002.0.123")),
            (f"w::{uuid}:{uuid}:-3", names.write_key("", uuid, uuid, -3)),
            ("w::a.b:~GOrgtVnwFph2mrOHutlImCVLaMbrJL3U:12", names.write_key("", "a.b", ".hidden", 12)),
        ):
            self.assertEqual(want, got)

    def test_so_are_values(self) -> None:
        self.assertEqual(({"type": "json", "base64": "eyJhIjoxfQ=="}, []), values.pack("json", b'{"a":1}'))
        packed, operations = values.pack("bytes", b"\x07" * (values.PIECE_BYTES + 1))
        pieces = ["tAwxgAgWAt0K1xXWD3v780t3erlGZ_MYbDLRljAlS8c", "yjWHWPbSfmz0UnKTeXenSP2IOR22ec7afce_HwBe6Hk"]
        self.assertEqual({"type": "bytes", "pieces": pieces}, packed)
        self.assertEqual([f"p:{piece}" for piece in pieces], [one["key"] for one in operations])


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_the_same_by_await(self) -> None:
        thread, keeper = a_thread(), saver()
        at = await keeper.aput(config(thread), checkpoint("1", {"n": 1}, {"n": 1}), metadata(0), {"n": 1})
        await keeper.aput(at, checkpoint("2", {"n": 2}, {"n": 2}), metadata(1), {"n": 2})
        await asyncio.gather(*(keeper.aput_writes(config(thread, "2"), [("c", n)], f"task-{n}") for n in range(4)))
        latest: Any = await keeper.aget_tuple(config(thread))
        self.assertEqual(({"n": 2}, 4), (latest.checkpoint["channel_values"], len(latest.pending_writes)))
        self.assertEqual(["2", "1"], [one.checkpoint["id"] async for one in keeper.alist(config(thread))])
        self.assertEqual(["1"], [one.checkpoint["id"] async for one in keeper.alist(config(thread), filter={"step": 0}, limit=1)])
        await keeper.adelete_thread(thread)
        self.assertIsNone(await keeper.aget_tuple(config(thread)))


if __name__ == "__main__":
    unittest.main()
