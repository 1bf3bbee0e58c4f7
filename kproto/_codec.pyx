# cython: nonecheck=True
"""The C-accelerated codec of LeaderAndIsr 0-7, StopReplica 0-4, UpdateMetadata 0-8 and the headers around them.

One compilation unit, its parts in ``_cython``. Public functions and classes as ``kproto.codec.Codec`` says; values,
verdicts and bytes are those of Kafka 3.9.1's own classes.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject_GenericGetAttr, PyObject_GenericSetAttr
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT8_MAX, INT8_MIN, INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t,
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from collections.abc import Mapping
from os import urandom
from typing import NamedTuple

from kproto.api import request_header_version
from kproto.errors import (
    EncodeError, FieldNotInVersion, Malformed, OutOfRange, Truncated, UnsupportedApi, UnsupportedVersion,
)
from kproto.json_form import snake_case, uuid_from_json, uuid_to_json
from kproto.types import ZERO_UUID

include "_cython/base.pxi"
include "_cython/tagged.pxi"
include "_cython/ids.pxi"
include "_cython/reader.pxi"
include "_cython/writer.pxi"
include "_cython/json.pxi"
include "_cython/headers.pxi"
include "_cython/requests.pxi"
include "_cython/partition_errors.pxi"
include "_cython/leader_and_isr.pxi"
include "_cython/leader_and_isr_read.pxi"
include "_cython/leader_and_isr_write.pxi"
include "_cython/leader_and_isr_json.pxi"
include "_cython/stop_replica.pxi"
include "_cython/stop_replica_read.pxi"
include "_cython/stop_replica_write.pxi"
include "_cython/stop_replica_json.pxi"
include "_cython/update_metadata.pxi"
include "_cython/update_metadata_read.pxi"
include "_cython/update_metadata_write.pxi"
include "_cython/update_metadata_json.pxi"
include "_cython/columns.pxi"
include "_cython/columns_given.pxi"
include "_cython/columns_encode.pxi"

cdef extern from *:
    """
    /* Until Python 3.11 the collector may run, and with it any finalizer, wherever an object is made: also where a list
     * is half filled. Later Pythons collect between two bytecodes only. */
    #if PY_VERSION_HEX < 0x030C0000
    static int kp_pause_collector(void) { return PyGC_Disable(); }
    static void kp_resume_collector(int was_on) { if (was_on) PyGC_Enable(); }
    #else
    static int kp_pause_collector(void) { return 0; }
    static void kp_resume_collector(int was_on) { (void)was_on; }
    #endif
    """
    bint kp_pause_collector() noexcept
    void kp_resume_collector(bint) noexcept

cdef enum part:
    REQUEST, RESPONSE, REQUEST_HEADER, RESPONSE_HEADER


cdef int draw_hash_key() except -1:
    cdef bytes key = urandom(16)
    memcpy(kp_hash_key, PyBytes_AS_STRING(key), 16)
    return 0


draw_hash_key()


cdef int64_t small(object value, str field) except? -1:
    """A number whose range the caller checks; one beyond int64 becomes one that fails every check."""
    cdef int overflow = 0
    if not PyLong_Check(value):
        try:
            value = PyNumber_Index(value)
        except TypeError:
            raise TypeError(f"{field}: expected an int, got {type(value).__name__}") from None
    cdef int64_t x = PyLong_AsLongLongAndOverflow(value, &overflow)
    return INT64_MIN if overflow else x


cdef int checked_api(object api_key) except -1:
    """The api key, if it is one of this codec's."""
    cdef int64_t api = small(api_key, "api_key")
    if 4 <= api <= 6:
        return <int>api
    raise UnsupportedApi(api_key, f"the C codec knows api keys 4, 5 and 6, not {api_key}")


cdef int checked_version(int api, object version) except -1:
    """The version, if this codec's api has it."""
    cdef int64_t v = small(version, "version")
    cdef int highest = 8 if api == 6 else 7 if api == 4 else 4
    if 0 <= v <= highest:
        return <int>v
    name = "UpdateMetadata" if api == 6 else "LeaderAndIsr" if api == 4 else "StopReplica"
    raise UnsupportedVersion(api, version, name, 0, highest)


cdef part kind_of(object kind) except *:
    if kind == "request":
        return REQUEST
    if kind == "response":
        return RESPONSE
    raise ValueError(f"kind is 'request' or 'response', not {kind!r}")


cdef object read(object data, part kind, int api, int version, bint strict, Py_ssize_t *used):
    """Read one message from the start of a buffer."""
    cdef Py_buffer view
    cdef kp_reader r
    cdef object message = None
    cdef bint paused
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        r.base = r.at = <rp>view.buf
        r.end = r.base + view.len
        r.strict = strict
        r.owner = <void *>data if type(data) is bytes else NULL
        r.code = KP_OK
        r.depth = 0
        paused = kp_pause_collector()
        try:
            message = read_part(&r, kind, api, version)
        finally:
            kp_resume_collector(paused)
        if r.code == KP_OK and strict and r.at != r.end and used == NULL:
            kp_fault(&r, KP_STRICT_TRAILING, r.at, r.end - r.at, "")
        if r.code != KP_OK:
            raise fault_error(&r, api if api >= 0 else None, version if api >= 0 else None)
        if used != NULL:
            used[0] = r.at - r.base
    finally:
        PyBuffer_Release(&view)
    return message


cdef object read_part(kp_reader *r, part kind, int api, int version):
    """A message or header, or None after a fault. No Python code runs in here."""
    if kind == REQUEST:
        return read_request(r, api, version)
    if kind == RESPONSE:
        if api == 6:
            return umr_read_response(r, version)
        if api == 4:
            return lisr_read_response(r, version)
        return sr_read_response(r, version)
    if kind == REQUEST_HEADER:
        return read_request_header(r, version)
    return read_response_header(r, version)


def decode_request(api_key, version, data, *, bint strict=False):
    """Read a request's body. See ``kproto.codec.decode_request``."""
    cdef int api = checked_api(api_key), v = checked_version(api, version)
    return read(data, REQUEST, api, v, strict, NULL)


def decode_request_from(api_key, version, data, *, bint strict=False):
    """``decode_request``, and how many bytes the message took; the bytes behind it are ignored."""
    cdef int api = checked_api(api_key), v = checked_version(api, version)
    cdef Py_ssize_t used = 0
    message = read(data, REQUEST, api, v, strict, &used)
    return message, used


def decode_response(api_key, version, data, *, bint strict=False):
    """Read a response's body. See ``kproto.codec.decode_response``."""
    cdef int api = checked_api(api_key), v = checked_version(api, version)
    return read(data, RESPONSE, api, v, strict, NULL)


def decode_response_from(api_key, version, data, *, bint strict=False):
    """``decode_response``, and how many bytes the message took; the bytes behind it are ignored."""
    cdef int api = checked_api(api_key), v = checked_version(api, version)
    cdef Py_ssize_t used = 0
    message = read(data, RESPONSE, api, v, strict, &used)
    return message, used


def encode(message, version):
    """Write a message of this codec. See ``kproto.codec.encode``."""
    cdef type kind = type(message)
    if kind is UpdateMetadataRequest or kind is LeaderAndIsrRequest or kind is StopReplicaRequest:
        return write(message, REQUEST, checked_version(api_of(message), version))
    if kind is UpdateMetadataResponse or kind is LeaderAndIsrResponse or kind is StopReplicaResponse:
        return write(message, RESPONSE, checked_version(message.api_key, version))
    raise TypeError(f"expected a message of this codec, got {kind.__name__}")


def message_class(api_key, kind):
    """The class of an API's requests or responses."""
    cdef int api = checked_api(api_key)
    cdef bint request = kind_of(kind) == REQUEST
    if api == 6:
        return UpdateMetadataRequest if request else UpdateMetadataResponse
    if api == 4:
        return LeaderAndIsrRequest if request else LeaderAndIsrResponse
    return StopReplicaRequest if request else StopReplicaResponse


cdef int derived_header_version(object data) except -1:
    """The version of a request header by the api key and version that it begins with."""
    cdef Py_buffer view
    cdef rp p
    cdef int key, version
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 4:
            return 0  # too short for any version: reading says so
        p = <rp>view.buf
        key = kp_i16(p)
        version = kp_i16(p + 2)
    finally:
        PyBuffer_Release(&view)
    try:
        return request_header_version(key, version)
    except UnsupportedApi as e:
        raise Malformed(str(e), 0, "request_api_key") from None


def decode_request_header(data, header_version=None, *, bint strict=False):
    """Read a request header; without a version, that of the api key and version in it."""
    cdef int v = derived_header_version(data) if header_version is None else checked_header_version(header_version, 2)
    return read(data, REQUEST_HEADER, -1, v, strict, NULL)


def decode_request_header_from(data, header_version=None, *, bint strict=False):
    """``decode_request_header``, and how many bytes it took: where the body begins."""
    cdef int v = derived_header_version(data) if header_version is None else checked_header_version(header_version, 2)
    cdef Py_ssize_t used = 0
    header = read(data, REQUEST_HEADER, -1, v, strict, &used)
    return header, used


def encode_request_header(header, header_version=None):
    """Write a request header; without a version, that of its api key and version."""
    if type(header) is not RequestHeader:
        raise TypeError(f"expected a RequestHeader of this codec, got {type(header).__name__}")
    if header_version is None:
        header_version = request_header_version(header.request_api_key, header.request_api_version)
    return write(header, REQUEST_HEADER, checked_header_version(header_version, 2))


def decode_response_header(data, header_version, *, bint strict=False):
    """Read a response header."""
    return read(data, RESPONSE_HEADER, -1, checked_header_version(header_version, 1), strict, NULL)


def decode_response_header_from(data, header_version, *, bint strict=False):
    """``decode_response_header``, and how many bytes it took: where the body begins."""
    cdef Py_ssize_t used = 0
    header = read(data, RESPONSE_HEADER, -1, checked_header_version(header_version, 1), strict, &used)
    return header, used


def encode_response_header(header, header_version):
    """Write a response header."""
    if type(header) is not ResponseHeader:
        raise TypeError(f"expected a ResponseHeader of this codec, got {type(header).__name__}")
    return write(header, RESPONSE_HEADER, checked_header_version(header_version, 1))
