cdef class FrameIds:
    cdef bytes _place

    cpdef bytes of(self, long long offset)


cpdef bytes frame_body_id(frame, api_key, version)
cdef _begin_body(api_key, version, str direction, start)
