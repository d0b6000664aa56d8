// `simd.h` for any CPU: vectors of four, which every compiler knows. Included by that alone.
#pragma once

namespace {

constexpr int W = 4, REGISTERS = 16;
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

inline vu rounded(vf v) {
    const vu bits = (vu)v;
    const vu near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const vu nan = (vu)(v != v);
    return (near & ~nan) | ((bits | 0x400000u) & nan);
}
inline float sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }

inline float widened(f16 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
    const uint32_t exponent = (x.bits >> 10) & 31, fraction = x.bits & 0x3ff;
    float f;
    if (exponent == 0) {
        f = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
        return sign ? -f : f;
    }
    const uint32_t e = exponent == 31 ? 255 : exponent + 112;
    const uint32_t bits = sign | (e << 23) | (fraction << 13);
    memcpy(&f, &bits, 4);
    return f;
}
inline f16 narrowed(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    const float size = __builtin_fabsf(f);
    if (!(size < 65520.0f)) return {static_cast<uint16_t>(sign | (f != f ? 0x7e00 : 0x7c00))};
    if (size < 6.103515625e-5f) {  // 2^-14: subnormal, in steps of 2^-24
        const uint16_t steps = static_cast<uint16_t>(__builtin_nearbyintf(size * 16777216.0f));
        return {static_cast<uint16_t>(sign | steps)};
    }
    bits &= 0x7fffffff;
    bits += 0xfff + ((bits >> 13) & 1);
    return {static_cast<uint16_t>(sign | ((bits - (112u << 23)) >> 13))};
}

inline vf set(float x) { return vf{x, x, x, x}; }
inline vf load(const float *p) { return vf{p[0], p[1], p[2], p[3]}; }
inline vf load(const bf16 *p) {
    typedef uint16_t four __attribute__((vector_size(8)));
    four half;
    memcpy(&half, p, sizeof half);
    return (vf)(__builtin_convertvector(half, vu) << 16);
}
// Slow in any case, so not worth copies.
inline __attribute__((noinline)) vf load(const f16 *p) {
    return vf{widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])};
}
inline void store(float *p, vf v) { memcpy(p, &v, sizeof v); }
inline void store(bf16 *p, vf v) {
    typedef uint16_t four __attribute__((vector_size(8)));
    const four half = __builtin_convertvector(rounded(v) >> 16, four);
    memcpy(p, &half, sizeof half);
}
inline __attribute__((noinline)) void store(f16 *p, vf v) {
    for (int i = 0; i < W; ++i) p[i] = narrowed(v[i]);
}
inline vf fma(vf a, vf b, vf c) { return a * b + c; }
inline vf larger(vf a, vf b) { return a > b ? a : b; }
inline float largest(vf v) {
    float best = v[0];
    for (int i = 1; i < W; ++i) best = v[i] > best ? v[i] : best;
    return best;
}
inline vf first_lanes(vf v, int n, float other) {
    for (int i = 0; i < W; ++i) {
        if (i >= n) v[i] = other;
    }
    return v;
}
inline vf nearest(vf v) {
    const vf magic = set(12582912.0f);  // 1.5 * 2^23: what is added to it loses its fraction
    return (v + magic) - magic;
}
inline vf power_of_two(vi e) {
    const vi bits = (e + 127) << 23;
    vf power;
    memcpy(&power, &bits, sizeof power);
    return power;
}
inline vf times_power_of_two(vf v, vf n) {  // in two halves: 2^n alone may not be a float
    const vi e = __builtin_convertvector(n, vi), half = e >> 1;
    return v * power_of_two(half) * power_of_two(e - half);
}
inline vf lanes_of_four(vf a, vf b, vf c, vf d) { return vf{sum(a), sum(b), sum(c), sum(d)}; }
inline vf lanes_of_all(const vf *v) { return v[0]; }
inline vf absolute(vf v) { return v < 0.0f ? -v : v; }
inline vf by_sign(vf x, vf v, vf w) { return x < 0.0f ? w : v; }

}  // namespace
