// Vectors of W floats for the instruction set a file is compiled for, as the few operations that the
// kernels need, and arrays of fp32, bf16 or fp16 read into them. Arithmetic is always fp32.
//
// Each instruction set's file has the same: `vf` of W floats and `vu` of as many 32-bit words, and how
// many REGISTERS hold them;
//   rounded            the nearest bf16, ties to even, in each lane's upper half; a NaN stays one
//   sum, largest       of all lanes; sum always by the same tree: its bits depend on its addends
//   set, load, store   all lanes; of float, bf16, f16
//   fma                a * b + c
//   larger             the second operand wins where one is NaN
//   first_lanes        the first n lanes of v, `other` in the rest
//   nearest, times_power_of_two (n whole), absolute
//   by_sign            v where x >= 0 or NaN, else w
//   lanes_of_four      within each quarter: sums of a, b, c, d
//   lanes_of_all       of W / 4 answers of that, one vector: the sums of all W, in order
// TS_HAS_F16: fp16 is converted by instruction.
#pragma once
#include <string.h>

#include "common.h"

namespace {

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

}  // namespace

#if defined(__AVX2__)
#define TS_HAS_F16
#include "x86.h"
#if defined(__AVX512F__)
#include "simd_avx512.h"
#else
#include "simd_avx2.h"
#endif
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define TS_HAS_F16
#include <arm_neon.h>

#include "simd_neon.h"
#else
#include "simd_plain.h"
#endif

namespace {

// n < W elements: memory past them is not touched, the other lanes are zero. Rare, so never inlined:
// copies of them would be a part of all there is to compile.
template <class T>
__attribute__((noinline, cold)) vf load_some(const T *p, int n) {
    T whole[W] = {};
    memcpy(whole, p, n * sizeof(T));
    return load(whole);
}
template <class T>
__attribute__((noinline, cold)) void store_some(T *p, vf v, int n) {
    T whole[W];
    store(whole, v);
    memcpy(p, whole, n * sizeof(T));
}

// Calls each(first, count) on vectors of W elements over n, the last one shorter.
template <class Each>
inline void over(int64_t n, Each each) {
    int64_t i = 0;
    for (; i + W <= n; i += W) each(i, W);
    if (i < n) each(i, static_cast<int>(n - i));
}
template <class T>
inline vf take(const T *p, int n) {
    return n == W ? load(p) : load_some(p, n);
}
template <class T>
inline void put(T *p, vf v, int n) {
    if (n == W) {
        store(p, v);
    } else {
        store_some(p, v, n);
    }
}

}  // namespace
