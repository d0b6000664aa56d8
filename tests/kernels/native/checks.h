// What every check of the native library needs: random numbers, arrays of a dtype whose unwritten
// elements are NaN, and how far answers were off. Knows no kernel.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "common.h"

struct Dice {
    uint64_t state = 0x9e3779b97f4a7c15u;

    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    int64_t between(int64_t low, int64_t high) {  // both included
        return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
    }
    double real() {  // about normal, of size 1
        double sum = 0;
        for (int i = 0; i < 6; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
        return (sum - 3) * M_SQRT2;
    }
};

// The nearest number of a dtype, ties to even.
inline double nearest(double v, int64_t dtype) {
    if (dtype == TS_FP32) return static_cast<float>(v);
    int exponent;
    frexp(v, &exponent);
    const int digits = dtype == TS_BF16 ? 8 : 11, least = dtype == TS_BF16 ? -125 : -13;
    const double unit = ldexp(1, std::max(exponent, least) - digits);
    return nearbyint(v / unit) * unit;
}

// `count` elements of a dtype, NaN until written.
struct Array {
    int64_t dtype, count;
    std::vector<char> bytes;

    Array(int64_t dtype, int64_t count)
        : dtype(dtype), count(count), bytes(static_cast<size_t>(count * size()), '\xff') {}

    int64_t size() const { return dtype == TS_FP32 ? 4 : 2; }
    char *at(int64_t i) { return bytes.data() + i * size(); }

    double operator[](int64_t i) const { return read(bytes.data() + i * size(), dtype); }
    static double read(const char *at, int64_t dtype) {
        uint32_t bits = 0;
        memcpy(&bits, at, dtype == TS_FP32 ? 4 : 2);
        if (dtype == TS_FP16) {
            const int exponent = bits >> 10 & 31, fraction = bits & 1023;
            const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                                : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                               : ldexp(fraction, -24);
            return bits & 0x8000 ? -size : size;
        }
        if (dtype == TS_BF16) bits <<= 16;
        float value;
        memcpy(&value, &bits, 4);
        return value;
    }
    void set(int64_t i, double v) { write(at(i), v, dtype); }
    static void write(char *at, double v, int64_t dtype) {
        v = nearest(v, dtype);
        uint32_t bits;
        const float value = static_cast<float>(v);
        memcpy(&bits, &value, 4);
        if (dtype == TS_BF16) bits >>= 16;
        if (dtype == TS_FP16) {
            int exponent;
            frexp(v, &exponent);
            const uint32_t sign = signbit(v) ? 0x8000 : 0;
            const double size = fabs(v);
            bits = size >= 65536 ? 0x7c00
                   : size < 0x1p-14
                       ? static_cast<uint32_t>(size * 0x1p24)
                       : static_cast<uint32_t>(ldexp(size, 11 - exponent)) - 1024 +
                             (static_cast<uint32_t>(exponent + 14) << 10);
            bits |= sign;
        }
        memcpy(at, &bits, dtype == TS_FP32 ? 4 : 2);
    }
    void random(Dice &dice) {
        for (int64_t i = 0; i < count; ++i) set(i, dice.real());
    }
};

// Memory at a multiple of 64, full of NaN.
struct Scratch {
    std::vector<char> bytes;
    char *at;

    explicit Scratch(int64_t size) : bytes(static_cast<size_t>(size + 64), '\xff') {
        at = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
    }
};

// Half a unit in the last place, as a share of the value.
inline double half_unit(int64_t dtype) {
    return dtype == TS_FP32 ? 0x1p-24 : dtype == TS_BF16 ? 0x1p-8 : 0x1p-11;
}

// How far answers were off, as a multiple of the room they had.
struct Seen {
    double worst = 0;
    int64_t answers = 0;

    void look(double got, double want, double room) {
        const double off = fabs(got - want);
        ++answers;
        if (!(off <= worst * room)) worst = off / room >= 0 ? off / room : INFINITY;
    }
    void must(bool holds) { look(holds, 1, 0.5); }
};
