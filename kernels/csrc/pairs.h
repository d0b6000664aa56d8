// Rows of fp32, bf16 or fp16 in twos of vectors, 2 W elements at a time: bf16's even elements are one
// vector and its odd ones the other (a shift and a mask; no lane is crossed), fp32's and fp16's are
// the first and the second half. What is loaded so, added up element by element, and stored so, is
// in order again.
#pragma once
#include "simd.h"

namespace {

template <class V>
static inline V read(const void *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

template <int D>
struct Row;

template <>
struct Row<TS_FP32> {
    typedef float T;
    static inline void load(const T *p, vf &lo, vf &hi) {
        lo = read<vf>(p);
        hi = read<vf>(p + W);
    }
    static inline void store(T *p, vf lo, vf hi) {
        memcpy(p, &lo, sizeof lo);
        memcpy(p + W, &hi, sizeof hi);
    }
};

template <>
struct Row<TS_BF16> {
    typedef uint16_t T;
    static inline void load(const T *p, vf &lo, vf &hi) {
        const vu both = read<vu>(p);
        lo = (vf)(both << 16);
        hi = (vf)(both & 0xffff0000u);
    }
    static inline void store(T *p, vf lo, vf hi) {
        const vu both = (rounded(lo) >> 16) | (rounded(hi) & 0xffff0000u);
        memcpy(p, &both, sizeof both);
    }
};

// Five-bit exponents convert by instruction only: plain machines leave fp16 to torch.
#if defined(TS_HAS_F16)
template <>
struct Row<TS_FP16> {
    typedef uint16_t T;
    static inline void load(const T *p, vf &lo, vf &hi) {
        lo = ::load((const f16 *)p);
        hi = ::load((const f16 *)p + W);
    }
    static inline void store(T *p, vf lo, vf hi) {
        ::store((f16 *)p, lo);
        ::store((f16 *)p + W, hi);
    }
};
#endif

// The first n < 2 W elements, zeros after them: nothing beyond a row is read.
// Rare, so never inlined.
template <int D>
__attribute__((noinline, cold)) static void load_first(const typename Row<D>::T *p, int64_t n,
                                                       vf &lo, vf &hi) {
    typename Row<D>::T some[2 * W] = {};
    memcpy(some, p, (size_t)n * sizeof *p);
    Row<D>::load(some, lo, hi);
}

template <int D>
__attribute__((noinline, cold)) static void store_first(typename Row<D>::T *p, int64_t n, vf lo,
                                                        vf hi) {
    typename Row<D>::T some[2 * W];
    Row<D>::store(some, lo, hi);
    memcpy(p, some, (size_t)n * sizeof *p);
}

}  // namespace
