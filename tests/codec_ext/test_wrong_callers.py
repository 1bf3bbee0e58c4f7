"""Callers that break every rule get an error or the right bytes, never a read or write out of bounds.

What crashed a process once runs in a process of its own, so that a crash is a failure with a name.
"""

import textwrap

import pytest
from commands import python_prints

COMMON = """
import array, ctypes, gc, sys, threading
from typing import Any
import numpy as np
import pyarrow as pa
from kproto import _codec
from kproto._codec import *
from kproto.errors import EncodeError

ROWS = {"topic": ["a", "a", "b"], "partition": [0, 1, 0], "isr": [[1], [2, 3], []], "replicas": [[1], [2, 3], []]}

def refused(errors, work, *args):
    try:
        made = work(*args)
    except errors as e:
        print(type(e).__name__, e)
    else:
        raise AssertionError(f"taken: {made!r}")

def batch(**changed):
    rows = decode_columns(6, 8, encode_columns(UpdateMetadataRequest(), 8, ROWS))
    columns = dict(zip(rows.names, pa.record_batch(rows).columns))
    return pa.record_batch(columns | changed)

class Handed:
    '''What hands out its Arrow capsules as it likes.'''
    def __init__(self, schema, array):
        self.capsules = schema, array
    def __arrow_c_array__(self, requested_schema=None):
        return self.capsules

def handed(schema_of, array_of):
    return Handed(schema_of.__arrow_c_array__()[0], array_of.__arrow_c_array__()[1])

def encoded(columns):
    return encode_columns(UpdateMetadataRequest(), 8, columns)

class ArrowArray(ctypes.Structure):
    pass

ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))), ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p), ("private_data", ctypes.c_void_p)]

def struct_in(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ArrowArray.from_address(get(capsule, b"arrow_array"))
"""


def run(code: str) -> str:
    """What a program prints; it must end by itself."""
    return python_prints(COMMON + textwrap.dedent(code))


PROGRAMS = {
    "a subclass of Message that names an api": """
        Message = UpdateMetadataRequest.__mro__[1]
        for api in (4, 5, 6):
            for kind in ("request", "response"):
                class Odd(Message):
                    api_key = api
                Odd.kind = kind
                refused(TypeError, encode, Odd(), 0)
                refused(TypeError, encode_columns, Odd(), 0, ROWS)
    """,
    "None where a struct belongs": """
        for message, version in (
            (UpdateMetadataRequest(topic_states=[None], live_brokers=[None]), 8),
            (UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState(partition_states=[None])]), 8),
            (UpdateMetadataRequest(ungrouped_partition_states=[None]), 4),
            (LeaderAndIsrRequest(topic_states=[None], live_leaders=[None]), 7),
            (LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(partition_states=[None])]), 7),
            (LeaderAndIsrResponse(topics=[None]), 5),
            (LeaderAndIsrResponse(partition_errors=[None]), 4),
            (StopReplicaRequest(topic_states=[None]), 4),
            (StopReplicaRequest(topics=[None]), 1),
            (StopReplicaRequest(ungrouped_partitions=[None]), 0),
            (StopReplicaResponse(partition_errors=[None]), 4),
        ):
            refused(EncodeError, encode, message, version)
            wrong = (TypeError, AttributeError)
            refused(wrong, message.to_json, version)
            for name in ("partition_states", "topic_ids", "broker_endpoints", "error_counts", "partition_error_counts"):
                try:
                    reading = getattr(message, name, None)
                    reading() if callable(reading) else list(reading or ())
                except wrong:
                    pass
            if hasattr(message, "error_response"):
                try:
                    message.error_response(3)
                except wrong:
                    pass
    """,
    "an array that lies about its length": """
        class Lying(array.array):
            def __len__(self):
                return 1_000_000
        leaders = Lying("i", [1, 2, 3])
        rows = {"topic": ["t"] * 1_000_000, "partition": range(1_000_000), "leader": leaders}
        refused(ValueError, lambda: Columns.from_sequences(6, **rows))
    """,
    "an api key that changes between two looks": """
        class Turning:
            def __init__(self, *keys):
                self.keys = list(keys)
            def __index__(self):
                return self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]
        for key in (Turning(6, 400), Turning(6, 6, 400), Turning(4, -9), Turning(5, 5, 7)):
            for work in (lambda: ColumnsBuilder(key), lambda: Columns.from_sequences(key, topic=["a"], partition=[1]),
                         lambda: decode_request(key, 4, bytes(64)), lambda: decode_columns(key, 0, bytes(64))):
                try:
                    work()
                except Exception as e:
                    print(type(e).__name__)
    """,
    "a builder used by its own argument": """
        body = encode_columns(UpdateMetadataRequest(), 8, ROWS)
        builder = ColumnsBuilder(6)
        class Version:
            def __index__(self):
                builder.append(8, body)
                builder.finish()
                return 8
        for _ in range(50):
            assert builder.append(Version(), body) == 3
            assert len(builder.finish()) == 3
        met, done = [], threading.Event()
        class Slow:
            '''Lets the other thread run in the middle of an append's arguments.'''
            def __index__(self):
                done.wait(0.001)
                return 8
        large = encode_columns(UpdateMetadataRequest(), 8, {"topic": ["t"] * 100_000, "partition": range(100_000)})
        def work():
            for _ in range(40):
                try:
                    builder.append(Slow(), large)
                    builder.finish()
                except RuntimeError as e:
                    met.append(e)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        class Api:
            def __index__(self):
                try:
                    fresh.__init__(6)
                except TypeError:
                    pass
                return 6
        fresh = ColumnsBuilder.__new__(ColumnsBuilder)
        refused(TypeError, fresh.__init__, Api())
    """,
    "a message that another thread changes while text with surrogates is written": """
        import builtins
        message = UpdateMetadataRequest.from_columns({"topic": ["t"] * 50 + ["u"], "partition": range(51)}, 8)
        message.topic_states[1].topic_name = "first \\ud800 surrogates"
        rows = message.topic_states[0].partition_states
        real = builtins.__import__
        def importing(name, *args, **kwargs):
            if rows:
                rows[-1].isr = range(10_000)
                rows[-1].unknown_tagged_fields = [(1, bytes(10_000))]
            return real(name, *args, **kwargs)
        for name in [n for n in sys.modules if n.startswith("encodings.utf_16")]:
            del sys.modules[name]
        class Finder:
            def find_spec(self, name, path=None, target=None):
                importing("sys")
        sys.meta_path.insert(0, Finder())
        builtins.__import__ = importing
        data = encode(message, 8)
        builtins.__import__ = real
        assert decode_request(6, 8, data).topic_states[1].topic_name == "first ? surrogates"
    """,
    "a finalizer that changes the message while it is written": """
        message = decode_request(6, 8, encode(UpdateMetadataRequest(
            live_brokers=[UpdateMetadataBroker(id=i, endpoints=[UpdateMetadataEndpoint(host="h" * 9, listener="L")] * 9)
                          for i in range(300)],
            topic_states=[UpdateMetadataTopicState(partition_states=[UpdateMetadataPartitionState()] * 50)]
        ), 8))
        class Ring:
            def __init__(self):
                self.ring = self
            def __del__(self):
                if grown:
                    message.topic_states[0].partition_states[:] = [UpdateMetadataPartitionState(isr=range(5000))] * 50
        grown = True
        gc.set_threshold(1)
        for version in (8, 7, 6, 5):
            Ring()
            message.live_brokers = message.live_brokers
            encode(message, version)
        grown = False
        Ring()
    """,
    "Arrow offsets that descend or lie beyond": """
        def lists(offsets, values):
            '''A batch whose isr has these offsets, set behind Arrow's back, which would refuse them.'''
            own = np.zeros(len(offsets), dtype=np.int32)
            rows = batch(isr=pa.ListArray.from_arrays(pa.array(own), pa.array(values, pa.int32())))
            own[:] = offsets
            return rows
        good = encoded(lists([0, 1, 3, 3], [1, 2, 3]))
        assert good == encoded(lists([2, 3, 5, 5], [8, 9, 1, 2, 3])), "offsets need not begin at 0"
        for offsets in ([0, 2, 1, 3], [0, 4, 2, 3], [-1, 0, 1, 2], [0, 1, 3, 4], [0, 2**31 - 1, 2, 3],
                        [0, 2**31 - 1, -2, 3], [3, 2, 1, 0], [2**31 - 1, -2**31, 0, 1]):
            refused(ValueError, encoded, lists(offsets, [1, 2, 3]))
        def names(offsets, data, type=pa.string(), width=np.int32, coded=False):
            own = np.zeros(len(offsets), dtype=width)
            made = pa.Array.from_buffers(type, len(offsets) - 1, [None, pa.py_buffer(own), pa.py_buffer(data)])
            if coded:
                made = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), made, safe=False)
            rows = batch(topic=made)
            own[:] = offsets
            return rows
        for offsets in ([0, 9, 1, 2], [0, 5, 9, 2], [-1, 0, 1, 2], [0, -5, 1, 2], [2, 1, 0, 0], [0, 0, 0, -1]):
            refused(ValueError, encoded, names(offsets, b"ab"))
            refused(ValueError, encoded, names(offsets, b"ab", pa.large_string(), np.int64))
            refused(ValueError, encoded, names(offsets, b"ab", coded=True))
        for codes in ([0, 1, 9], [0, -1, 1], [2**31 - 1, 0, 0]):
            coded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(["a", "b"]), safe=False)
            refused(ValueError, encoded, batch(topic=coded))
            ids = pa.array([bytes(16)] * 2, pa.binary(16))
            coded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), ids, safe=False)
            refused(ValueError, encoded, batch(topic_id=coded))
    """,
    "lists of dictionary codes": """
        coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array([70, 80], pa.int32()))
        isr = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), coded)
        refused(TypeError, encoded, batch(isr=isr))
        refused(TypeError, encoded, batch(leader=coded))
    """,
    "Arrow capsules that were consumed, or are none": """
        rows = batch()
        capsules = rows.__arrow_c_array__()
        once = Handed(*capsules)
        assert encoded(once) == encoded(once) == encoded(rows), "reading consumes nothing"
        assert pa.record_batch(Handed(*capsules)) == rows
        refused(ValueError, encoded, once)
        refused((ValueError, TypeError), encoded, Handed(1, 2))
        refused((ValueError, TypeError), encoded, Handed(*reversed(rows.__arrow_c_array__())))
        class Three:
            def __arrow_c_array__(self, requested_schema=None):
                return 1, 2, 3
        refused((ValueError, TypeError), encoded, Three())
        schema = rows.schema.__arrow_c_schema__()
        refused((ValueError, TypeError), encoded, Handed(schema, schema))
    """,
    "a schema that does not fit its array": """
        rows, ints = batch(), pa.array([1, 2, 3], pa.int32())
        few = pa.record_batch({"topic": ["a"], "partition": pa.array([1], pa.int32())})
        plain = pa.array(["a", "b", "c"])
        for array in (ints, few, pa.array([], pa.int32()), plain, pa.nulls(3), pa.array([[1], [2], [3]]),
                      rows.remove_column(3), rows.append_column("more", ints), batch(leader=plain),
                      batch(isr=ints), batch(topic=ints), batch(topic=plain), batch(topic=pa.nulls(3))):
            refused(ValueError, encoded, handed(rows, array))
        refused(TypeError, encoded, handed(pa.array(["a"]), rows))
        changes = (("length", -1), ("length", 2**62), ("offset", -1), ("offset", 2**62), ("n_buffers", 0),
                   ("n_children", 0), ("n_children", 2**40), ("null_count", 2), ("buffers", None))
        for place in ("top", "topic", "topic_id", "partition", "isr", "dictionary", "items"):
            for field, value in changes:
                held = rows.__arrow_c_array__()
                top = struct_in(held[1])
                child = {"top": lambda: top, "topic": lambda: top.children[1].contents,
                         "dictionary": lambda: top.children[1].contents.dictionary.contents,
                         "topic_id": lambda: top.children[2].contents, "partition": lambda: top.children[3].contents,
                         "isr": lambda: top.children[8].contents,
                         "items": lambda: top.children[8].contents.children[0].contents}[place]()
                before = getattr(child, field)
                if before == value:
                    continue
                setattr(child, field, value)
                refused((ValueError, TypeError, OverflowError), encoded, Handed(*held))
                setattr(child, field, before)
        held = rows.__arrow_c_array__()
        column = struct_in(held[1]).children[3].contents
        for missing in (0, None):
            address, column.buffers[1] = column.buffers[1], missing
            refused(ValueError, encoded, Handed(*held))
            column.buffers[1] = address
        assert encoded(Handed(*held)) == encoded(rows)
    """,
    "nulls that are counted wrongly": """
        bits = pa.py_buffer(bytes([0b101]))
        values = pa.array([1, 2, 3], pa.int32()).buffers()[1]
        refused(ValueError, encoded, batch(leader=pa.Array.from_buffers(pa.int32(), 3, [bits, values])))
        items = pa.Array.from_buffers(pa.int32(), 3, [bits, values])
        refused(ValueError, encoded, batch(isr=pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), items)))
        names = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array(["a", None]))
        refused(ValueError, encoded, batch(topic=names))
    """,
    "memory that changes under a batch": """
        n = 20_000
        offsets, values = np.arange(n + 1, dtype=np.int32), np.zeros(n, dtype=np.int32)
        codes = np.zeros(n, dtype=np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        names = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(["a", "b"]))
        none = pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, dtype=np.int32)), pa.array([], pa.int32()))
        ints = pa.array(values)
        columns = dict.fromkeys(("partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch"), ints)
        rows = pa.record_batch(columns | {"topic": names, "isr": lists, "replicas": lists, "offline_replicas": none})
        stop = threading.Event()
        def scribble():
            high = np.full(n, 2**31 - 1, dtype=np.int32)
            low, calm = -high, np.arange(1, n + 1, dtype=np.int32)
            while not stop.is_set():  # numpy copies with the GIL released
                for source in (high, low, calm):
                    np.copyto(offsets[1:], source)
                    np.copyto(codes, source)
                np.copyto(codes, 0)
        writer = threading.Thread(target=scribble)
        writer.start()
        told = set()
        for _ in range(150):
            try:
                decode_request(6, 8, encoded(rows))
            except ValueError as e:
                told.add(type(e).__name__)
        stop.set()
        writer.join()
        print(told)
    """,
    "sequences that change while they are read": """
        class Shrinking(list):
            def __getitem__(self, i):
                self.clear()
                return [1, 2, 3]
        class Cutting:
            def __init__(self, victim): self.victim = victim
            def __index__(self):
                self.victim.clear()
                return 7
        victim = [1] * 5000
        victim[0] = Cutting(victim)
        refused(ValueError, lambda: UpdateMetadataPartitionState(isr=victim))
        Columns.from_sequences(6, topic=["a"] * 3, partition=[1, 2, 3], isr=Shrinking([[1]] * 3))
        row = UpdateMetadataPartitionState(isr=range(9), replicas=range(9))
        class Changing:
            def __index__(self):
                row.replicas = range(5000)
                row.isr = ()
                return 5
        row.isr = [Changing()] * 3
        assert (row.isr, len(row.replicas)) == ((5, 5, 5), 9)
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_wrong_caller_is_told(what: str) -> None:
    run(PROGRAMS[what])
